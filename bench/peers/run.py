"""Races this project against PyTorch on the same networks, weights and batches: checks gradients, then
lets all contestants take turns, and writes a table. `make bench-peers` and `make bench-frontier`, or see
--help; README.md says how to read the tables."""

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import frontier
import report
from race import NobodyLeft, Race, say
from rows import BARS, FRONTIER_QUICK_ROWS, FRONTIER_ROWS, QUICK_ROWS, ROWS, candidates, chosen, plain_ones
from workers import HERE, Workers, WorkerError, environment


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    build = HERE.parent.parent / "build"
    add = parser.add_argument
    add("--build", type=Path, default=build, help="where CMake built peers_worker, peers_meter and peers_plot")
    add("--frontier", action="store_true", help="throughput against memory: budgets of ours beside torch's own knobs")
    add("--totals", action="store_true",
        help="of the frontier: budgets and verdicts are of all tensors, not of activations alone")
    add("--plain", action="store_true", help="of the frontier: ordinary networks instead of reversible ones, on both sides")
    add("--out", type=Path, help="folder of the results; bench-peers, bench-frontier or the like in build, when not given")
    add("--rows", default="*", help="which rows, patterns separated by commas")
    add("--precisions", default=",".join(sensible_precisions()),
        help="fp32, bf16; by default bf16 only where the CPU has the vectors that torch's bf16 products need")
    add("--contestants", default="*", help="which ones, patterns separated by commas")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)))
    add("--rounds", type=int, default=5, help="turns of each contestant")
    add("--steps", type=int, default=2, help="timed steps of a turn, at least")
    add("--turn-seconds", type=float, default=1.0, help="small rows take more steps, for so long a turn")
    add("--row-seconds", type=float, default=math.inf, help="a row begins no other round after so long of turns")
    add("--leave-at", type=float, default=1.15,
        help="of the frontier: a rival leaves when another with no more bytes was so many times as fast in a round")
    add("--warm", type=int, default=2, help="steps before the first turn")
    add("--gemm-seconds", type=float, default=5.0, help="for the machine's GEMM peak of a row; 0: none")
    add("--gemm-side", type=int, default=2048)
    add("--seed", type=int, default=1)
    add("--timeout", type=float, default=3600, help="seconds that an answer may take")
    add("--quick", action="store_true", help="a smoke test: tiny networks, processes shared, figures mean nothing")
    add("--no-meter", action="store_true", help="do not measure PyTorch's activations")
    add("--fresh", action="store_true", help="forget the results that are there")
    add("--list", action="store_true", help="print rows and contestants, and end")
    options = parser.parse_args()
    if options.totals and not options.frontier:
        parser.error("--totals: expected with --frontier")
    if options.plain and not options.frontier:
        parser.error("--plain: expected with --frontier")
    name = "bench-frontier" if options.frontier else "bench-peers"
    kind = ("-totals" if options.totals else "") + ("-plain" if options.plain else "")
    options.out = options.out or build / (name + kind)
    return options


def cpu_info(key):
    """The first such line of /proc/cpuinfo; None where there is none."""
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith(key)), None)
    except OSError:
        return None


def sensible_precisions():
    """Without AVX-512 torch's bf16 products were seen to be 20 to 200 times slower than those in fp32: a step
    takes minutes, on both sides, and its time says nothing."""
    flags = (cpu_info("flags") or "").split()
    x86 = platform.machine() == "x86_64"
    return ["fp32"] if x86 and "avx512bw" not in flags else ["fp32", "bf16"]


def machine():
    cpu = cpu_info("model name") or platform.machine()
    return {"cpu": cpu, "cores": os.cpu_count(), "torch": version("torch")}


def settle(options):
    """Completes the options; returns what results must share to be comparable."""
    if options.quick:
        options.rounds, options.steps, options.turn_seconds, options.warm = 1, 1, 0.0, 1
        options.gemm_seconds, options.gemm_side = 0.05, 128
    if options.frontier:
        options.gemm_seconds = 0
    else:
        options.leave_at = None  # ratios are of all
    options.contestants = chosen(candidates(options.frontier, options.plain), options.contestants)
    options.precisions = chosen(list(BARS), options.precisions)
    options.worker = options.build / "bench" / "peers" / "peers_worker"
    options.meter = None if options.no_meter else options.build / "bench" / "peers" / "libpeers_meter.so"
    options.plot = options.build / "bench" / "peers" / "peers_plot" if options.frontier else None
    for needed in filter(None, (options.worker, options.meter, options.plot)):
        if not needed.exists():
            sys.exit(f"peers: {needed} is not there: build the targets peers_worker, peers_meter and peers_plot, or "
                     "name another folder with --build")
    keys = ("contestants", "threads", "rounds", "steps", "turn_seconds", "seed", "quick", "totals", "leave_at")
    return {key: getattr(options, key) for key in keys} | machine()


def load(path, settings):
    """The results under these settings that an earlier run has written."""
    done = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                result = json.loads(line)
            except json.JSONDecodeError:  # the last one, cut off
                continue
            if result["settings"] == settings:
                done[result["label"], result["precision"]] = result
    return done


def race_all(options, settings, rows, done, file, pages):
    """Adds to `done`, and to the file as they come; returns [label, precision, why] of rows that failed."""
    failed = []
    with tempfile.TemporaryDirectory(dir=options.out) as folder, ExitStack() as stack:
        folder = Path(folder)
        env = environment(options.threads, folder)
        workers = Workers(options.worker, env, options.out, options.timeout, together=options.quick)
        stack.callback(workers.close)
        for row, precision in ((row, precision) for row in rows for precision in options.precisions):
            if (row.label, precision) in done:
                say(f"{row.label} {precision}: there already")
                continue
            try:
                result = Race(row, precision, options, workers, folder).run()
            except (WorkerError, NobodyLeft) as error:
                say(f"{row.label} {precision} FAILED: {error}")
                failed.append([row.label, precision, str(error)])
                continue
            done[row.label, precision] = result | {"settings": settings}
            with open(file, "a") as lines:
                lines.write(json.dumps(done[row.label, precision]) + "\n")
            print(pages.row_table(result), flush=True)
    return failed


def main():
    options = parse()
    pages = frontier if options.frontier else report
    if options.frontier:
        rows = FRONTIER_QUICK_ROWS if options.quick else FRONTIER_ROWS
    else:
        rows = QUICK_ROWS if options.quick else ROWS
    if options.plain:
        rows = plain_ones(rows)
    if options.list:
        print("rows:", *(row.label for row in rows), "\ncontestants:", *candidates(options.frontier, options.plain))
        return 0
    try:
        labels = chosen([row.label for row in rows], options.rows)
        settings = settle(options)
    except ValueError as error:
        sys.exit(f"peers: {error}")
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "results.jsonl"
    if options.fresh:
        file.unlink(missing_ok=True)
    done = load(file, settings)
    failed = race_all(options, settings, [row for row in rows if row.label in labels], done, file, pages)
    order = [(row.label, precision) for precision in BARS for row in rows]
    results = [done[key] for key in order if key in done]
    failed += [[result["label"], result["precision"], f"{name}: {why}"]
               for result in results for name, why in result["failed"].items()]
    (options.out / "table.md").write_text(pages.whole(results, settings, failed))
    whole = {"settings": settings, "summary": pages.summary(results), "failed": failed, "rows": results}
    (options.out / "results.json").write_text(json.dumps(whole, indent=1) + "\n")
    plots = frontier.draw(results, options.plot, options.out) if options.frontier else []
    print(pages.summary_text(results))
    written = ["table.md", "results.json", "results.jsonl", *(file.name for file in plots)]
    print(f"written: {options.out}/" + ", ".join(written))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
