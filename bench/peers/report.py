"""Tables and summaries of results."""

import math

from rows import BARS, HUGGING_FACE, STORED_FORMS

TITLES = ["contestant", "samples/s", "step ms", "speed / ours", "activations", "peak RSS", "gradient diff"]
TORCH_STORED = [*STORED_FORMS, "torch_compile"]
REVERSIBLE = ["ours_reprop", "ours_pareprop"]


def mib(number):
    return "-" if number is None else f"{number / 2**20:.1f} MiB"


def fastest(result, names):
    """The least median of those that raced, in milliseconds; None when none did."""
    times = [result["contestants"][name]["median_ms"] for name in names if name in result["contestants"]]
    return min(times, default=None)


def markdown(titles, rows):
    """Aligned: the first column to the left, the others to the right."""
    widths = [max(len(line[i]) for line in [titles, *rows]) for i in range(len(titles))]

    def line(cells):
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths)]
        aligned[0] = cells[0].ljust(widths[0])
        return "| " + " | ".join(aligned) + " |"

    rule = "|" + "|".join("-" * (width + 1) + (":" if i else "-") for i, width in enumerate(widths)) + "|"
    return "\n".join([line(titles), rule, *map(line, rows)])


def row_table(result):
    ours = fastest(result, REVERSIBLE)
    lines = []
    for name, one in result["contestants"].items():
        other = name == HUGGING_FACE
        difference = one.get("gradient_difference")
        lines.append([
            name + (" (another network)" if other else ""), f"{one['samples_per_s']:.2f}",
            f"{one['median_ms']:.1f}", f"{ours / one['median_ms']:.2f}" if ours else "-",
            mib(one.get("activation_peak_bytes")), mib(one.get("rss_peak_bytes")),
            "-" if difference is None else f"{difference:.1e}"])
    text = [f"## {result['label']}, {result['precision']}", "",
            f"{result['parameters'] / 1e6:.1f} M parameters, {result['gmacs']:.2f} GMACs a sample. compile, "
            f"checkpoint and reversible of torch use the attention form {result['attention']}."]
    compiled = result["contestants"].get("torch_compile", {}).get("compile_s")
    if compiled:
        text[-1] += f" torch.compile took {compiled:.0f} s before its first step ended."
    reached = gemm_share(result)
    if reached:
        text.append(
            f"GEMM peak: {reached['square_gflops']:.0f} GFLOP/s at {reached['square_side']}^3, "
            f"{reached['step_gflops']:.0f} over the shapes of a stored step. Our step at 4 forward passes: "
            f"{reached['ours_gflops']:.0f} GFLOP/s, {100 * reached['of_square']:.0f} % and "
            f"{100 * reached['of_shapes']:.0f} % of those.")
    return "\n".join([*text, "", markdown(TITLES, lines), ""])


def gemm_share(result):
    """A reversible step is forward, again forward, and twice as much in the backward pass."""
    ours, gemm = fastest(result, REVERSIBLE), result["gemm"]
    if not ours or not gemm or not gemm["step_gflops"]:
        return None
    reached = 4 * 2 * result["gmacs"] * result["batch"] / (1e-3 * ours)
    return {**gemm, "ours_gflops": reached, "of_square": reached / gemm["square_gflops"],
            "of_shapes": reached / gemm["step_gflops"]}


COMPARISONS = {
    "ours / fastest stored PyTorch": (REVERSIBLE, TORCH_STORED),
    "ours / PyTorch checkpoint": (REVERSIBLE, ["torch_checkpoint"]),
    "ours / vanilla reversible PyTorch": (REVERSIBLE, ["torch_reversible"]),
    "our stored / fastest stored PyTorch": (["ours_stored"], TORCH_STORED),
    "our auto / fastest stored PyTorch": (["ours_auto"], TORCH_STORED),
    "pareprop / reprop": (["ours_pareprop"], ["ours_reprop"]),
}


def activation(result, names):
    found = [result["contestants"].get(name, {}).get("activation_peak_bytes") for name in names]
    return min((bytes for bytes in found if bytes), default=None)


def gathered(ratios):
    """Of [(ratio, label)]."""
    mean = math.exp(sum(math.log(ratio) for ratio, _ in ratios) / len(ratios))
    (worst, worst_row), (best, best_row) = min(ratios), max(ratios)
    return {"geometric_mean": mean, "worst": worst, "worst_row": worst_row, "best": best,
            "best_row": best_row, "rows": len(ratios)}


def summary(results):
    """By precision and comparison: speeds as ratios, more than 1 is in favour of the first named."""
    whole = {}
    for precision in BARS:
        own = [result for result in results if result["precision"] == precision]
        part = {}
        for title, (first, second) in COMPARISONS.items():
            times = [(fastest(r, first), fastest(r, second), r["label"]) for r in own]
            ratios = [(b / a, label) for a, b, label in times if a and b]
            if ratios:
                part[title] = gathered(ratios)
        bytes = [(activation(r, ["ours_reprop"]), activation(r, TORCH_STORED), r["label"]) for r in own]
        ratios = [(b / a, label) for a, b, label in bytes if a and b]
        if ratios:
            part["activations: stored PyTorch / our reprop"] = gathered(ratios)
        if part:
            whole[precision] = part
    return whole


def summary_text(results):
    text = ["## Summary", "",
            "Speed of the first over the second, geometric mean over rows: more than 1 is in favour of the first. "
            "ours: the faster of reprop and pareprop."]
    for precision, part in summary(results).items():
        lines = [[title, f"{one['geometric_mean']:.2f}", f"{one['worst']:.2f}", one["worst_row"],
                  f"{one['best']:.2f}", one["best_row"], str(one["rows"])] for title, one in part.items()]
        titles = ["ratio", "mean", "worst", "in row", "best", "in row", "rows"]
        text += ["", f"### {precision}", "", markdown(titles, lines)]
    return "\n".join(text) + "\n"


def whole(results, settings, failed):
    bars = ", ".join(f"{bar:.0e} in {precision}" for precision, bar in BARS.items()) + " of ours"
    head = [
        "# Training steps of this project and of PyTorch", "",
        f"{settings['cpu']}, {settings['threads']} threads of {settings['cores']} cores, torch {settings['torch']}. "
        f"{settings['rounds']} rounds of turns, {settings['steps']} steps a turn or more; medians. A step is "
        "forward, loss and backward; no optimizer; dropout and drop-path off. Same network, weights and batch "
        f"for all but {HUGGING_FACE}. gradient diff: worst tensor against stored float32 PyTorch, by its norm; "
        f"at most {bars}. README.md beside run.py says how all is measured.", ""]
    if settings["quick"]:
        head += ["**A smoke test: tiny networks in shared processes. The figures mean nothing.**", ""]
    for label, precision, why in failed:
        head += [f"**{label} {precision} FAILED: {why}**", ""]
    return "\n".join([*head, *(row_table(result) for result in results), summary_text(results)])
