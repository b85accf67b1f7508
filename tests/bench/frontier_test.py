"""The frontier of bench/peers: verdicts of results that are made up, then a quick run: plans keep to their
budgets, more budget is not less plan, tables and pictures are written."""

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

from quick_run import PEERS, WORKER, quick_run

import frontier
from rows import FRONTIER, FRONTIER_QUICK_ROWS, FRONTIER_ROWS, SHARES, SPLIT, WITHIN, plain_ones

RACED = [name for name in FRONTIER if not name.startswith("torch_compile")]  # compiling takes minutes


def point(mib, speed, budget=None):
    one = {"samples_per_s": speed, "median_ms": 1e3 / speed, "activation_peak_bytes": mib * 2**20,
           "gradient_difference": 1e-7}
    if budget is not None:
        one["plan"] = {"budget_bytes": budget * 2**20, "predicted_peak_bytes": mib * 2**20, "fits": True,
                       "mode": "reprop", "policies": "SR", "recompute_between": False, "parts": 1}
    return one


def made_up():
    return {"label": "vit-b1", "precision": "fp32", "parameters": 1e6, "gmacs": 1.0, "attention": "sdpa",
            "contestants": {
                "ours_at_5": point(4, 10.0, 5), "ours_at_30": point(28, 12.0, 30),
                "ours_at_60": point(65, 9.0, 60), "ours_reprop": point(4, 9.5),
                "torch_sdpa": point(90, 30.0), "torch_checkpoint": point(30, 8.0),
                "torch_compile_at_30": point(29, 16.0), "torch_compile_at_60": point(61, 20.0)}}


def check_verdicts():
    found = {one["contestant"]: one for one in frontier.verdicts(made_up())}
    assert list(found) == ["ours_at_5", "ours_at_30", "ours_at_60", "ours_reprop"], list(found)
    lean, some, more, mode = found.values()
    # Nobody else is as lean; of two within the budget the faster counts; a byte more than the budget does not.
    assert (lean["rival"], lean["ratio"], lean["rise"], lean["kept"]) == (None, None, None, True), lean
    assert (some["rival"], some["ratio"], some["rise"]) == ("torch_compile_at_30", 0.75, 1.2), some
    assert (more["rival"], more["rise"], more["kept"]) == ("torch_compile_at_30", 0.75, False), more
    assert (mode["rival"], mode["budget"], mode["rise"], mode["limit_bytes"]) == (None, False, None, 4 * 2**20), mode
    assert frontier.fit_nowhere(made_up()) == ["torch_sdpa", "torch_compile_at_60"]


def check_totals():
    """Our budgets are of activations: by totals a point may take what it took."""
    result = made_up()
    for name, one in result["contestants"].items():
        one["total_peak_bytes"] = one["activation_peak_bytes"] + (10 if name.startswith("ours") else 30) * 2**20
    some = next(one for one in frontier.verdicts(result, "total") if one["contestant"] == "ours_at_60")
    assert (some["limit_bytes"], some["kept"], some["rival"]) == (75 * 2**20, True, "torch_compile_at_30"), some
    assert "may take of all tensors" in frontier.row_table(result)
    result["measure"] = "total"
    for one in result["contestants"].values():
        if "plan" in one:
            one["plan"]["totals"] = True
    lean = frontier.verdicts(result)[0]
    assert (lean["limit_bytes"], lean["kept"]) == (5 * 2**20, False), lean
    assert frontier.plot(result)["x_label"] == "MiB of all tensors"


def check_exact_budgets():
    result = made_up()
    result["contestants"] |= {"ours_within_150MiB": point(140, 24.0, 150), "torch_compile_at_100": point(200, 20.0)}
    against = frontier.against_whole(result)
    assert against == {"ours_within_150MiB": {"rival": "torch_sdpa", "ratio": 0.8}}, against
    assert "0.80 times as fast as torch_sdpa" in frontier.row_table(result)
    assert frontier.summary([result])["fp32"]["against_whole"][0]["point"] == "vit-b1 ours_within_150MiB"


def check_summary():
    part = frontier.summary([made_up()])["fp32"]
    assert (part["points"], part["kept"], part["compared"], part["as_fast"]) == (3, 2, 2, 0), part
    assert (part["rises"], part["rises_of"], part["worst"]) == (1, 2, 9.0 / 16.0), part
    assert part["worst_point"] == "vit-b1 ours_at_60", part
    table = frontier.row_table(made_up())
    assert "(**above**)" in table and "none is as lean" in table, table


def check_without_meter():
    result = made_up()
    for name in result["contestants"]:
        if name.startswith("torch_"):
            result["contestants"][name]["activation_peak_bytes"] = None
    assert all(one["rival"] is None for one in frontier.verdicts(result))
    assert [one["name"] for one in frontier.plot(result)["series"]] == ["ours, by budget", "our reprop and pareprop"]


def check_rows():
    assert [row.label for row in FRONTIER_ROWS] == [
        "vit_small-b32", "swin_tiny-b16", "roberta_base-b8x128", "vit_small-b1-1024px", "roberta_base-b1x4096"]
    whole, long = FRONTIER_ROWS[0], FRONTIER_ROWS[3]
    left_out = {"fp32": "ours_within_130MiB", "bf16": "ours_within_150MiB"}
    for precision, other in left_out.items():
        assert [name for name in FRONTIER if not whole.admits(name, precision)] == [other]
        assert [name for name in FRONTIER if not long.admits(name, precision)] == [*WITHIN, "torch_matmul", *SPLIT]
    assert list(SHARES.values()) == [0.05, 0.15, 0.3, 0.6, 1.0]


def check_plot_program():
    program = WORKER.parent / "peers_plot"
    done = subprocess.run([program], input="{}", text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (1, "") and "peers_plot: " in done.stderr, done
    done = subprocess.run([program], input=json.dumps(frontier.plot(made_up())), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "ours, by budget" in "".join(xml.etree.ElementTree.fromstring(done.stdout).itertext())


def check_quick(out):
    one_row = ["--frontier", "--rows", "swin_tiny*"]
    done = quick_run(out, RACED, *one_row)
    assert done.returncode == 0, done.stdout + done.stderr
    whole = json.loads((out / "results.json").read_text())
    assert whole["failed"] == [] and len(whole["rows"]) == 1
    for row in whole["rows"]:
        raced = {name for name in RACED if SPLIT.get(name, ("", 0))[1] < row["batch"]} - set(WITHIN)
        assert set(row["contestants"]) == raced and raced & set(SPLIT), row["label"]
        for rival in ("torch_stored", "torch_checkpoint", "torch_reversible"):
            small, large = (row["contestants"][f"{rival}_by_{n}"] for n in (1, 2))
            assert small["activation_peak_bytes"] < large["activation_peak_bytes"], (rival, small, large)
            assert small["total_peak_bytes"] > small["activation_peak_bytes"] + 4 * row["parameters"]
        points = [row["contestants"][name] for name in SHARES]
        stored = row["contestants"]["ours_stored"]["activation_peak_bytes"]
        for name, one in zip(SHARES, points):
            plan, took = one["plan"], one["activation_peak_bytes"]
            print(f"{row['label']} {name}: {plan['policies']} {plan['mode']}, {plan['parts']} parts, budget {plan['budget_bytes']}, "
                  f"predicted {plan['predicted_peak_bytes']}, took {took}")
            assert abs(plan["budget_bytes"] / stored - SHARES[name]) < 0.02, (stored, plan)
            assert took <= plan["budget_bytes"] or not plan["fits"], (name, one)
            assert plan["fits"] == (plan["predicted_peak_bytes"] <= plan["budget_bytes"]), plan
        assert points[-1]["plan"]["fits"] and points[-1]["plan"]["parts"] == 1
        assert points[0]["plan"]["parts"] > 1  # the rest of so small a network is more than the budget
        assert (out / f"frontier-{row['label']}-fp32.svg").stat().st_size > 1000
        assert f"## {row['label']}, fp32" in (out / "table.md").read_text()
    before = (out / "results.jsonl").read_text()
    done = quick_run(out, RACED, *one_row)
    assert done.stderr.count("there already") == 1, done.stderr
    assert (out / "results.jsonl").read_text() == before


def check_one_failure(out):
    """What one contestant cannot do is told, and the others race."""
    code = ("import rows, sys; rows.COMPILE_BUDGETS['torch_compile_at_10'] = 'a budget that is none'; "
            "import run; sys.exit(run.main())")
    command = [sys.executable, "-c", code, "--frontier", "--quick", "--build", str(WORKER.parents[2]), "--out", str(out),
               "--precisions", "fp32", "--contestants", "ours_reprop,torch_sdpa,torch_compile_at_10", "--rows", "vit_tiny*"]
    done = subprocess.run(command, text=True, capture_output=True, cwd=PEERS)
    assert done.returncode == 1, done.stdout + done.stderr
    whole = json.loads((out / "results.json").read_text())
    assert [set(row["contestants"]) for row in whole["rows"]] == [{"ours_reprop", "torch_sdpa"}], whole["rows"]
    assert [why.split(":")[0] for _, _, why in whole["failed"]] == ["torch_compile_at_10"], whole["failed"]
    assert "**torch_compile_at_10 FAILED" in (out / "table.md").read_text()


def check_totals_run(out):
    done = quick_run(out, ["ours_at_60", "ours_stored"], "--frontier", "--totals", "--rows", "vit_tiny*")
    assert done.returncode == 0, done.stdout + done.stderr
    row = json.loads((out / "results.json").read_text())["rows"][0]
    plan, stored = row["contestants"]["ours_at_60"]["plan"], row["contestants"]["ours_stored"]
    assert plan["fits"] and plan["budget_bytes"] > 8 * row["parameters"], plan
    assert plan["budget_bytes"] < stored["total_peak_bytes"], (plan, stored)


def check_quick_plain(out):
    raced = ["ours_checkpoint", "ours_at_30", "ours_at_100", "ours_stored", "torch_sdpa", "torch_matmul",
             "torch_checkpoint", "torch_checkpoint_by_2"]
    done = quick_run(out, raced, "--frontier", "--plain", "--rows", "vit_tiny*")
    assert done.returncode == 0, done.stdout + done.stderr
    whole = json.loads((out / "results.json").read_text())
    assert whole["failed"] == [] and [row["label"] for row in whole["rows"]] == [
        plain_ones(FRONTIER_QUICK_ROWS)[0].label]
    for row in whole["rows"]:
        assert row["label"].endswith("-plain") and set(row["contestants"]) == set(raced)
        kept = {name: one["activation_peak_bytes"] for name, one in row["contestants"].items()}
        assert kept["ours_checkpoint"] < kept["ours_stored"], kept
        assert kept["ours_checkpoint"] <= 1.1 * kept["torch_checkpoint"], kept
        plan = row["contestants"]["ours_at_30"]["plan"]
        assert set(plan["policies"]) <= set("SPC "), plan
        assert kept["ours_at_30"] <= plan["budget_bytes"] or not plan["fits"], (plan, kept)


def main():
    check_verdicts()
    check_totals()
    check_exact_budgets()
    check_summary()
    check_without_meter()
    check_rows()
    check_plot_program()
    with tempfile.TemporaryDirectory() as folder:
        check_quick(Path(folder) / "out")
        check_one_failure(Path(folder) / "failure")
        check_totals_run(Path(folder) / "totals")
        check_quick_plain(Path(folder) / "plain")


main()
