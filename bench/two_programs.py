#!/usr/bin/env python3
"""Two programs at once on the same cores, started directly, against one alone.

    bench/two_programs.py build/pareprop [--steps 60] [--rounds 3] [-- FLAGS OF train]

Prints the speed of each in shares of the speed alone; both should have 0.4 or more. Run it on a machine that does nothing
else. Exit code 1: one of the medians is less."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LEAST = 0.4
NETWORK = ["--model", "vit_cifar", "--data", "digits", "--batch", "16", "--mode", "pareprop", "--eval-every", "1000000",
           "--save-every", "0"]
# What the program would otherwise set is left to it.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")}


def speeds(program, count, steps, flags):
    """Steps a second of so many programs at once."""
    with tempfile.TemporaryDirectory() as folder:
        results = [Path(folder) / f"result-{number}.json" for number in range(count)]
        started = [subprocess.Popen([program, "train", *NETWORK, "--steps", str(steps), *flags, "--json", str(result),
                                     "--out", str(result.with_suffix(""))], env=ENVIRONMENT,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                   for result in results]
        for process in started:
            _, said = process.communicate()
            if process.returncode != 0:
                sys.exit(said)
        return [steps / json.loads(result.read_text())["seconds"] for result in results]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("flags", nargs="*", help="more flags of train, after --")
    asked = parser.parse_args()
    shares = ([], [])
    for number in range(asked.rounds):
        alone = speeds(asked.program, 1, asked.steps, asked.flags)[0]
        pair = speeds(asked.program, 2, asked.steps, asked.flags)
        for share, speed in zip(shares, pair):
            share.append(speed / alone)
        print(f"round {number + 1}: alone {alone:.2f} steps/s; two at once {pair[0]:.2f} and {pair[1]:.2f}: "
              f"{pair[0] / alone:.2f} and {pair[1] / alone:.2f} of it", flush=True)
    medians = [statistics.median(share) for share in shares]
    print(f"medians: {medians[0]:.2f} and {medians[1]:.2f}; expected at least {LEAST}")
    return 0 if min(medians) >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
