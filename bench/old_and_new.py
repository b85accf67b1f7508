#!/usr/bin/env python3
"""Training steps of two builds of the program, in turns: is the new one as fast as the old one?

    bench/old_and_new.py OLD/pareprop NEW/pareprop [--models vit_small,swin_tiny] [--turns 12] [--budget 200MiB,400MiB]

For each model and precision the programs take turns (`pareprop bench`, which verifies gradients first), and the one that
begins changes with every turn. With --budget the plans within so many bytes are timed, instead of modes. Speed is that of the new program in shares of the old one's: the ratio of the medians, and
the median of the ratios of a turn. Run it on a machine that does nothing else. Exit code 1: a ratio of medians is below
--least."""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def is_budget(mode):
    return mode[0].isdigit()


def step_ms(program, case, steps):
    """The median step of one turn."""
    model, precision, mode, batch = case
    # The mode that has to be named beside a budget is a lean one: it fits as well.
    what = ["--modes", "reprop", "--budget", mode] if is_budget(mode) else ["--modes", mode]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        run = subprocess.run([program, "bench", "--model", model, "--batch", str(batch), "--precision", precision,
                              *what, "--rounds", "1", "--steps", str(steps), "--json", str(result)],
                             capture_output=True, text=True, env={**os.environ, "GOMP_SPINCOUNT": "2000"})
        if run.returncode != 0:
            sys.exit(f"{program}: {run.stderr}")
        row = next(row for row in json.loads(result.read_text())["rows"]
                   if (row["budget_bytes"] > 0) == is_budget(mode))
        if not row["fits"]:
            sys.exit(f"{program}: {model} {precision} does not fit in {mode}")
        return row["step_ms"]


def race(programs, case, turns, steps):
    times = ([], [])
    for turn in range(turns):
        for which in ((0, 1) if turn % 2 == 0 else (1, 0)):
            times[which].append(step_ms(programs[which], case, steps))
        print(f"  turn {turn + 1}: {times[0][-1]:.1f} and {times[1][-1]:.1f} ms", file=sys.stderr, flush=True)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--models", default="vit_small,swin_tiny")
    parser.add_argument("--precisions", default="bf16,fp32")
    parser.add_argument("--modes", default="pareprop")
    parser.add_argument("--budget", default="", help="plans within so many bytes instead of modes: 200MiB,400MiB")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--steps", type=int, default=3, help="of one turn; their median counts")
    parser.add_argument("--least", type=float, default=0.98)
    asked = parser.parse_args()
    slower = False
    print("model       precision  mode         old ms    new ms  speed  in turns  fastest")
    for model, precision, mode in itertools.product(asked.models.split(","), asked.precisions.split(","),
                                                    (asked.budget or asked.modes).split(",")):
        old, new = race((asked.old, asked.new), (model, precision, mode, asked.batch), asked.turns, asked.steps)
        ratio = statistics.median(old) / statistics.median(new)
        in_turns = statistics.median(a / b for a, b in zip(old, new))
        slower = slower or ratio < asked.least
        print(f"{model:<11} {precision:<10} {mode:<10} {statistics.median(old):>8.1f}  {statistics.median(new):>8.1f}"
              f"  {ratio:.3f}     {in_turns:.3f}    {min(old) / min(new):.3f}", flush=True)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
