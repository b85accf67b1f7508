"""bench/peers on tiny networks of every family: all gradients agree, tables are written, a run that was
stopped goes on, and a wrong gradient is seen. Usage: peers_test.py PATH_OF_peers_worker"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from quick_run import PEERS, WORKER, quick_run

import report
from rows import BARS, OURS, QUICK_ROWS

SAME_NETWORK = [*OURS, "torch_sdpa", "torch_matmul", "torch_checkpoint", "torch_reversible"]


def check_results(out):
    whole = json.loads((out / "results.json").read_text())
    assert whole["failed"] == [], whole["failed"]
    assert {row["model"] for row in whole["rows"]} == {row.model for row in QUICK_ROWS}
    for row in whole["rows"]:
        assert set(row["contestants"]) == set(SAME_NETWORK), row["label"]
        for name, one in row["contestants"].items():
            print(f"{row['label']} {name}: gradients differ by {one['gradient_difference']:.1e}, "
                  f"{one['activation_peak_bytes'] / 2**20:.2f} MiB of activations")
            assert one["gradient_difference"] <= BARS["fp32"], (row["label"], name)
            assert one["median_ms"] > 0 and one["activation_peak_bytes"] > 0
            assert one["rss_peak_bytes"] > one["activation_peak_bytes"]
        plan = row["contestants"]["ours_auto"]["plan"]
        assert plan["fits"] and plan["mode"] == "stored", plan  # all of it fits in what is free
        kept = {name: one["activation_peak_bytes"] for name, one in row["contestants"].items()}
        assert kept["ours_reprop"] < kept["ours_stored"], kept
        assert kept["torch_reversible"] < kept["torch_matmul"], kept
    assert whole["summary"]["fp32"]["pareprop / reprop"]["rows"] == len(QUICK_ROWS)
    table = (out / "table.md").read_text()
    assert all(row.label in table for row in QUICK_ROWS)


def check_resume(out):
    before = (out / "results.jsonl").read_text()
    done = quick_run(out, SAME_NETWORK)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("there already") == len(QUICK_ROWS), done.stderr
    assert (out / "results.jsonl").read_text() == before


def check_summary():
    def row(label, **times):
        return {"label": label, "precision": "fp32",
                "contestants": {name: {"median_ms": ms} for name, ms in times.items()}}
    part = report.summary([
        row("a", ours_reprop=10.0, ours_pareprop=8.0, torch_sdpa=32.0, torch_compile=16.0),
        row("b", ours_reprop=5.0, ours_pareprop=10.0, torch_sdpa=40.0, torch_compile=50.0)])["fp32"]
    stored = part["ours / fastest stored PyTorch"]
    assert abs(stored["geometric_mean"] - 4.0) < 1e-9, stored
    assert (stored["worst"], stored["worst_row"], stored["best"]) == (2.0, "a", 8.0)
    overlap = part["pareprop / reprop"]
    assert (overlap["worst"], overlap["worst_row"], overlap["best_row"]) == (0.5, "b", "a")
    assert "ours / PyTorch checkpoint" not in part


def check_bar(out):
    """A bar that nobody can keep fails the row, loudly."""
    code = "import rows, sys; rows.BARS['fp32'] = 1e-12; import run; sys.exit(run.main())"
    command = [sys.executable, "-c", code, "--quick", "--build", str(WORKER.parents[2]), "--out", str(out),
               "--precisions", "fp32", "--contestants", "ours_reprop", "--rows", "vit_tiny*"]
    done = subprocess.run(command, text=True, capture_output=True, cwd=PEERS)
    assert done.returncode == 1, done.stderr
    assert "FAILED: ours_reprop: the gradient of" in done.stderr, done.stderr
    assert json.loads((out / "results.json").read_text())["rows"] == []


def main():
    check_summary()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        done = quick_run(out, SAME_NETWORK)
        assert done.returncode == 0, done.stdout + done.stderr
        check_results(out)
        check_resume(out)
        check_bar(Path(folder) / "bar")


main()
