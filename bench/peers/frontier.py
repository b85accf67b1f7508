"""Throughput against memory: tables, verdicts and plots of the frontier's results. A verdict sets one of our
points against the fastest of PyTorch's with no more activations, by our meter."""

import json
import subprocess

from report import markdown, mib
from rows import BARS, COMPILE_BUDGETS, SHARES, SPLIT, STORED_FORMS, is_ours

TITLES = ["contestant", "samples/s", "step ms", "budget", "predicted", "activations", "total", "gradient diff",
          "policies"]
VERDICT_TITLES = ["our point", "samples/s", "may take", "took", "fastest of PyTorch within that", "ours / it",
                  "ours / our point before"]


def verdicts(result):
    """Of our points, from the leanest budget on, then modes. `limit_bytes`: the budget, or what the mode took.
    `kept`: no more than the budget was measured. `rival` and `ratio` are None where no point of PyTorch is as
    lean; `rise` over the point before among budgets."""
    contestants = result["contestants"]
    rivals = {name: one for name, one in contestants.items()
              if not is_ours(name) and one.get("activation_peak_bytes") is not None}
    found, before = [], None
    for name in [*(name for name in SHARES if name in contestants),
                 *(name for name in contestants if is_ours(name) and name not in SHARES)]:
        one = contestants[name]
        took, speed = one["activation_peak_bytes"], one["samples_per_s"]
        limit = one["plan"]["budget_bytes"] if name in SHARES else took
        lean = [rival for rival, other in rivals.items() if other["activation_peak_bytes"] <= limit]
        rival = max(lean, key=lambda name: rivals[name]["samples_per_s"], default=None)
        found.append({
            "contestant": name, "share": SHARES.get(name), "samples_per_s": speed, "limit_bytes": limit,
            "activation_peak_bytes": took, "kept": took <= limit, "rival": rival,
            "ratio": speed / rivals[rival]["samples_per_s"] if rival else None,
            "rise": speed / before if before and name in SHARES else None})
        before = speed
    return found


def number(ratio):
    return "-" if ratio is None else f"{ratio:.2f}"


def verdict_line(one):
    took = mib(one["activation_peak_bytes"]) + ("" if one["kept"] else " (**above**)")
    return [one["contestant"], f"{one['samples_per_s']:.2f}", mib(one["limit_bytes"]), took,
            one["rival"] or "none is as lean", number(one["ratio"]), number(one["rise"])]


def words_of(plan):
    """A letter a block, as `pareprop plan` has them."""
    if plan is None:
        return "-"
    overlap = " overlapped" if plan["mode"] == "pareprop" else ""
    between = " recomputed between" if plan["recompute_between"] else ""
    parts = f" in {plan['parts']} parts" if plan["parts"] > 1 else ""
    return plan["policies"] + overlap + between + parts + ("" if plan["fits"] else " (nothing fits)")


def row_table(result):
    lines = []
    for name, one in result["contestants"].items():
        plan = one.get("plan")
        lines.append([
            name, f"{one['samples_per_s']:.2f}", f"{one['median_ms']:.1f}",
            mib(plan["budget_bytes"] if plan else None), mib(plan["predicted_peak_bytes"] if plan else None),
            mib(one.get("activation_peak_bytes")), mib(one.get("total_peak_bytes")),
            f"{one['gradient_difference']:.1e}", words_of(plan)])
    return "\n".join([
        f"## {result['label']}, {result['precision']}", "",
        f"{result['parameters'] / 1e6:.1f} M parameters, {result['gmacs']:.2f} GMACs a sample. checkpoint, "
        f"reversible and compile of torch use the attention form {result['attention']}.", "",
        markdown(TITLES, lines), "",
        markdown(VERDICT_TITLES, [verdict_line(one) for one in verdicts(result)]), ""])


def summary(results):
    """By precision: of all points with a budget, how many keep it, are as fast as PyTorch, rise."""
    whole = {}
    for precision in BARS:
        points = [(one, result["label"]) for result in results if result["precision"] == precision
                  for one in verdicts(result) if one["share"]]
        if not points:
            continue
        compared = [(one["ratio"], f"{label} {one['contestant']}") for one, label in points if one["ratio"]]
        rises = [(one["rise"], f"{label} {one['contestant']}") for one, label in points if one["rise"]]
        part = {"points": len(points), "kept": sum(one["kept"] for one, _ in points),
                "compared": len(compared), "as_fast": sum(ratio >= 1 for ratio, _ in compared),
                "rises": sum(rise >= 1 for rise, _ in rises), "rises_of": len(rises)}
        if compared:
            part["worst"], part["worst_point"] = min(compared)
        whole[precision] = part
    return whole


def summary_text(results):
    text = ["## Summary", ""]
    for precision, part in summary(results).items():
        line = (f"{precision}: {part['kept']} of {part['points']} points kept to their budget. At "
                f"{part['as_fast']} of the {part['compared']} where PyTorch has a point as lean, ours is at least "
                f"as fast as its fastest.")
        if "worst" in part:
            line += f" The worst: {part['worst']:.2f} ({part['worst_point']})."
        text.append(f"{line} Throughput rose in {part['rises']} of {part['rises_of']} steps to a larger budget.")
    return "\n".join(text) + "\n"


def whole(results, settings, failed):
    head = [
        "# Throughput against memory", "",
        f"{settings['cpu']}, {settings['threads']} threads of {settings['cores']} cores, torch {settings['torch']}. "
        f"{settings['rounds']} rounds of turns, {settings['steps']} steps a turn or more; medians. ours_at_N: the "
        "planner within N % of the activations of our stored training; torch_compile_at_N: torch.compile with "
        "activation_memory_budget N / 100. activations, budgets and predictions: peaks of all tensors but "
        "parameters, gradients and batch; total: of all tensors. torch_*_by_N: the batch in micro-batches of N "
        "samples. A letter a block: Store, Checkpoint, Anchor, Reverse. README.md beside "
        "run.py says how all is measured.", ""]
    if settings["quick"]:
        head += ["**A smoke test: tiny networks in shared processes. The figures mean nothing.**", ""]
    for label, precision, why in failed:
        head += [f"**{label} {precision} FAILED: {why}**", ""]
    return "\n".join([*head, *(row_table(result) for result in results), summary_text(results)])


def plot(result):
    """For peers_plot."""
    def points(names):
        raced = (result["contestants"].get(name, {}) for name in names)
        return [[one["activation_peak_bytes"] / 2**20, one["samples_per_s"]] for one in raced
                if one.get("activation_peak_bytes") is not None]
    theirs = [name for name in result["contestants"] if not is_ours(name)]
    series = [
        {"name": "ours, by budget", "points": points(SHARES)},
        {"name": "our reprop and pareprop", "points": points(["ours_reprop", "ours_pareprop"]), "line": False},
        {"name": "PyTorch stored", "points": points(STORED_FORMS), "line": False},
        {"name": "torch.utils.checkpoint", "points": points(["torch_checkpoint"]), "line": False},
        {"name": "vanilla reversible PyTorch", "points": points(["torch_reversible"]), "line": False},
        {"name": "PyTorch in micro-batches", "points": points(SPLIT), "line": False},
        {"name": "torch.compile, by budget", "points": points(COMPILE_BUDGETS), "line": False},
        {"name": "PyTorch's frontier", "points": points(theirs), "frontier": True}]
    return {"title": f"{result['label']}, {result['precision']}", "x_label": "MiB of activations",
            "y_label": "samples a second", "series": [one for one in series if one["points"]]}


def draw(results, program, folder):
    """One picture a result; returns the files."""
    files = []
    for result in results:
        file = folder / f"frontier-{result['label']}-{result['precision']}.svg"
        drawn = subprocess.run([program], input=json.dumps(plot(result)), text=True, capture_output=True, check=True)
        file.write_text(drawn.stdout)
        files.append(file)
    return files
