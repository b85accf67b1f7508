#!/usr/bin/env python3
"""Whether lean optimizers learn as AdamW with state in fp32 does.

    bench/optimizers/convergence.py build/pareprop --out FOLDER [--steps 1500] [--seeds 0 1 2]
        [--tasks fashion text] [--kinds 'adamw 8bit' ...] [--plots build/bench/peers/peers_plot]

Trains a RevViT on Fashion-MNIST (or the digits, where that is not installed) and a RevRoBERTa on the text that ships,
with each kind of state and each seed, and writes FOLDER/convergence.md: the final losses beside fp32's. With --plots
also a picture of the losses of each task, FOLDER/convergence-TASK.svg. A run that has its result is not repeated, and one
that was stopped goes on, so parts may be run apart, and the last call, with all tasks, seeds and kinds, writes the table
of all."""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training_runs import draw, losses_of, smoothed, train

FASHION = Path("/usr/share/datasets/fashion-mnist")
IMAGES = ["--model", "vit_cifar", "--width", "128", "--depth", "3", "--batch", "64", "--augment", "none",
          "--initial-std", "0.08", "--learning-rate", "2e-3"]
TASKS = {
    "fashion": ("RevViT, Fashion-MNIST", [*IMAGES, "--data", "fashion-mnist"]),
    "digits": ("RevViT, digits", [*IMAGES, "--data", "digits"]),
    "text": ("RevRoBERTa, persuasion", ["--model", "roberta_base", "--width", "192", "--depth", "4", "--seq-len", "64",
                                        "--vocabulary", "2048", "--batch", "16", "--data", "persuasion",
                                        "--learning-rate", "1e-3"]),
}
# Name, flags. The first is what others are compared with.
KINDS = {
    "adamw fp32": [],
    "adamw bf16": ["--optimizer-state", "bf16"],
    "adamw 8bit": ["--optimizer-state", "8bit"],
    "adafactor": ["--optimizer", "adafactor"],
    "sgd fp32": ["--optimizer", "sgd", "--learning-rate", "0.1", "--weight-decay", "1e-4"],
    "sgd 8bit": ["--optimizer", "sgd", "--learning-rate", "0.1", "--weight-decay", "1e-4", "--optimizer-state", "8bit"],
}
LAST = 50  # steps whose mean loss is the final one


def rows_of(task, arguments, curves):
    """Lines of the table; adds to `curves` the mean loss of all seeds by step, for each kind."""
    title, flags = TASKS[task]
    rows, of_fp32 = [], None
    for kind in ["adamw fp32", *(kind for kind in arguments.kinds if kind != "adamw fp32")]:
        runs = []
        for seed in arguments.seeds:
            folder = arguments.out / task / kind.replace(" ", "-") / f"seed-{seed}"
            own = [*flags, "--steps", str(arguments.steps), "--seed", str(seed), *KINDS[kind]]
            own += ["--mode", "pareprop"]
            evaluation = train(arguments.program, folder, own)["evaluation"]
            losses = losses_of(folder)
            runs.append((statistics.mean(losses[-LAST:]), evaluation["loss"], evaluation["accuracy"]))
            curves.setdefault(kind, []).append(losses)
            print(f"{title}, {kind}, seed {seed}: {runs[-1][0]:.4f}, validation {runs[-1][1]:.4f}", flush=True)
        means = [statistics.mean(column) for column in zip(*runs)]
        of_fp32 = of_fp32 or means
        spread = max(run[0] for run in runs) - min(run[0] for run in runs)
        rows.append(f"| {title} | {kind} | {means[0]:.4f} | {means[0] / of_fp32[0]:.4f} | {spread:.4f} | {means[1]:.4f} | "
                    f"{means[1] / of_fp32[1]:.4f} | {100 * means[2]:.1f} % |")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["fashion" if FASHION.exists() else "digits", "text"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["adamw fp32", "adamw bf16", "adamw 8bit"])
    parser.add_argument("--plots", help="the program peers_plot, for pictures (default: none)")
    arguments = parser.parse_args()
    head = [f"Means over seeds {', '.join(map(str, arguments.seeds))} after {arguments.steps} steps; loss: mean of the last "
            f"{LAST} steps; spread: largest less smallest loss of the seeds.", "",
            "| task | optimizer | loss | of fp32 | spread | validation loss | of fp32 | accuracy |",
            "|---|---|---|---|---|---|---|---|"]
    for task in arguments.tasks:
        curves = {}
        head += rows_of(task, arguments, curves)
        if arguments.plots:
            draw(arguments.plots, arguments.out / f"convergence-{task}.svg", TASKS[task][0], "training loss",
                 {kind: smoothed(runs) for kind, runs in curves.items()})
    table = "\n".join(head) + "\n"
    (arguments.out / "convergence.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
