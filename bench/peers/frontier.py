"""Throughput against memory: tables, verdicts and plots of the frontier's results. A verdict sets one of our
points against the fastest of PyTorch's with no more bytes, by our meter: of activations, or of all tensors."""

import json
import subprocess

from report import markdown, mib
from rows import BARS, BUDGETS, COMPILE_BUDGETS, SHARES, SPLIT, STORED_FORMS, WITHIN, is_ours

TITLES = ["contestant", "samples/s", "step ms", "budget", "predicted", "activations", "total", "gradient diff",
          "policies"]
MEASURES = {"activation": "activations", "total": "all tensors"}
# PyTorch's, everything stored, with the batch whole.
WHOLE = [*STORED_FORMS, "torch_compile_at_100"]


def measure_of(result):
    """What budgets of this result are of."""
    return result.get("measure", "activation")


def bytes_of(one, measure):
    return one.get(f"{measure}_peak_bytes")


def budget_of(one, measure):
    """None where there is none in this measure."""
    plan = one.get("plan")
    return plan["budget_bytes"] if plan and plan.get("totals", False) == (measure == "total") else None


def rivals_of(result, measure):
    return {name: one for name, one in result["contestants"].items()
            if not is_ours(name) and bytes_of(one, measure) is not None}


def verdicts(result, measure=None):
    """Of our points, from the leanest budget on, then modes. `limit_bytes`: the budget, or what was taken where
    there is none in this measure. `kept`: no more than that was measured. `rival` and `ratio` are None where no
    point of PyTorch is as lean; `rise` over the point before among budgets."""
    measure = measure or measure_of(result)
    contestants, rivals = result["contestants"], rivals_of(result, measure)
    found, before = [], None
    for name in [*(name for name in BUDGETS if name in contestants),
                 *(name for name in contestants if is_ours(name) and name not in BUDGETS)]:
        one = contestants[name]
        took, speed = bytes_of(one, measure), one["samples_per_s"]
        limit = budget_of(one, measure) or took
        lean = [rival for rival, other in rivals.items() if bytes_of(other, measure) <= limit]
        rival = max(lean, key=lambda name: rivals[name]["samples_per_s"], default=None)
        found.append({
            "contestant": name, "budget": budget_of(one, measure) is not None, "samples_per_s": speed,
            "limit_bytes": limit, "took_bytes": took, "kept": took <= limit, "rival": rival,
            "ratio": speed / rivals[rival]["samples_per_s"] if rival else None,
            "rise": speed / before if before and name in SHARES else None})
        before = speed
    return found


def fit_nowhere(result, measure=None):
    """PyTorch's that take more than the largest of our budgets."""
    measure = measure or measure_of(result)
    most = max((one["limit_bytes"] for one in verdicts(result, measure) if one["budget"]), default=None)
    return [] if most is None else [name for name, one in rivals_of(result, measure).items()
                                    if bytes_of(one, measure) > most]


def against_whole(result):
    """Of our points within exact bytes: how fast they are beside PyTorch's fastest that stores the batch whole."""
    contestants = result["contestants"]
    whole = [name for name in WHOLE if name in contestants]
    if not whole:
        return {}
    rival = max(whole, key=lambda name: contestants[name]["samples_per_s"])
    return {name: {"rival": rival, "ratio": contestants[name]["samples_per_s"] / contestants[rival]["samples_per_s"]}
            for name in WITHIN if name in contestants}


def number(ratio):
    return "-" if ratio is None else f"{ratio:.2f}"


def verdict_line(one):
    took = mib(one["took_bytes"]) + ("" if one["kept"] else " (**above**)")
    return [one["contestant"], f"{one['samples_per_s']:.2f}", mib(one["limit_bytes"]), took,
            one["rival"] or "none is as lean", number(one["ratio"]), number(one["rise"])]


def verdict_text(result, measure):
    of = MEASURES[measure]
    titles = ["our point", "samples/s", f"may take of {of}", "took", "fastest of PyTorch within that", "ours / it",
              "ours / our point before"]
    text = [markdown(titles, [verdict_line(one) for one in verdicts(result, measure)]), ""]
    nowhere = fit_nowhere(result, measure)
    if nowhere:
        text += [f"More than each of our budgets take, of {of}: {', '.join(nowhere)}.", ""]
    return text


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
        *(f"{name} is {one['ratio']:.2f} times as fast as {one['rival']}, which stores the batch whole.\n"
          for name, one in against_whole(result).items()),
        *(f"**{name} FAILED: {why}**\n" for name, why in result.get("failed", {}).items()),
        *(line for measure in sorted(MEASURES, key=lambda name: name != measure_of(result))
          if has_verdicts(result, measure) for line in verdict_text(result, measure))])


def has_verdicts(result, measure):
    return all(bytes_of(one, measure) is not None for name, one in result["contestants"].items() if is_ours(name))


def summary(results):
    """By precision: of all points with a budget, how many keep it, are as fast as PyTorch, rise."""
    whole = {}
    for precision in BARS:
        points = [(one, result["label"]) for result in results if result["precision"] == precision
                  for one in verdicts(result) if one["budget"]]
        if not points:
            continue
        compared = [(one["ratio"], f"{label} {one['contestant']}") for one, label in points if one["ratio"]]
        rises = [(one["rise"], f"{label} {one['contestant']}") for one, label in points if one["rise"]]
        part = {"points": len(points), "kept": sum(one["kept"] for one, _ in points),
                "compared": len(compared), "as_fast": sum(ratio >= 1 for ratio, _ in compared),
                "rises": sum(rise >= 1 for rise, _ in rises), "rises_of": len(rises)}
        if compared:
            part["worst"], part["worst_point"] = min(compared)
        exact = [one | {"point": f"{result['label']} {name}"} for result in results
                 if result["precision"] == precision for name, one in against_whole(result).items()]
        if exact:
            part["against_whole"] = exact
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
        for one in part.get("against_whole", []):
            line += f" {one['point']} is {one['ratio']:.2f} times as fast as {one['rival']} with the batch whole."
        text.append(f"{line} Throughput rose in {part['rises']} of {part['rises_of']} steps to a larger budget.")
    return "\n".join(text) + "\n"


def whole(results, settings, failed):
    head = [
        "# Throughput against memory", "",
        f"{settings['cpu']}, {settings['threads']} threads of {settings['cores']} cores, torch {settings['torch']}. "
        f"{settings['rounds']} rounds of turns, {settings['steps']} steps a turn or more; medians. ours_at_N: the "
        f"planner within N % of the {MEASURES['total' if settings['totals'] else 'activation']} of our stored "
        "training; ours_within_N: within so many bytes of activations; torch_compile_at_N: torch.compile with "
        "activation_memory_budget N / 100; torch_*_by_N: the batch in micro-batches of N samples. activations: peaks "
        "of all tensors but parameters, gradients and batch; total: of all tensors. A letter a block: Store, Products, "
        "Checkpoint, Anchor, Reverse. README.md beside run.py says how all is measured.", ""]
    if settings["quick"]:
        head += ["**A smoke test: tiny networks in shared processes. The figures mean nothing.**", ""]
    for label, precision, why in failed:
        head += [f"**{label} {precision} FAILED: {why}**", ""]
    return "\n".join([*head, *(row_table(result) for result in results), summary_text(results)])


def plot(result):
    """For peers_plot."""
    measure = measure_of(result)

    def points(names):
        raced = (result["contestants"].get(name, {}) for name in names)
        return [[bytes_of(one, measure) / 2**20, one["samples_per_s"]] for one in raced
                if bytes_of(one, measure) is not None]
    theirs = [name for name in result["contestants"] if not is_ours(name)]
    series = [
        {"name": "ours, by budget", "points": points(BUDGETS)},
        {"name": "our reprop and pareprop", "points": points(["ours_reprop", "ours_pareprop"]), "line": False},
        {"name": "PyTorch stored", "points": points(STORED_FORMS), "line": False},
        {"name": "torch.utils.checkpoint", "points": points(["torch_checkpoint"]), "line": False},
        {"name": "vanilla reversible PyTorch", "points": points(["torch_reversible"]), "line": False},
        {"name": "PyTorch in micro-batches", "points": points(SPLIT), "line": False},
        {"name": "torch.compile, by budget", "points": points(COMPILE_BUDGETS), "line": False},
        {"name": "PyTorch's frontier", "points": points(theirs), "frontier": True}]
    return {"title": f"{result['label']}, {result['precision']}", "x_label": f"MiB of {MEASURES[measure]}",
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
