"""What studies of training share: runs of `pareprop` that are not repeated, what they measured, and pictures of it."""

import json
import shutil
import statistics
import subprocess
import sys

NOTHING_TO_DO = "nothing_to_do"  # how a run ends that was trained to its end before


def command(*words):
    """Ends the program with what the command said if it fails."""
    words = [str(word) for word in words]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}:\n{done.stderr}")


def expect_same_flags(folder, flags):
    """What a folder holds was made with these flags, or nothing is in it yet."""
    path, said = folder / "flags.json", [str(flag) for flag in flags]
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(said))
    elif (before := json.loads(path.read_text())) != said:
        sys.exit(f"{folder} is of a run with other flags ({' '.join(before)}), not with {' '.join(said)}; choose another "
                 "folder with --out")


def result_of(program, folder, subcommand, flags, going_on=()):
    """What --json of a subcommand says. One that has its result is not repeated."""
    expect_same_flags(folder, flags)
    result = folder / "result.json"
    if not result.exists():
        command(program, subcommand, *flags, *going_on, "--json", folder / "running.json")
        (folder / "running.json").rename(result)
    return json.loads(result.read_text())


def train(program, folder, flags):
    """What `train --json` says of the run in FOLDER/run. One that was stopped goes on."""
    going_on = ["--resume", "auto"] if (folder / "run").exists() else []
    result = result_of(program, folder, "train", flags, ["--log-every", "1", "--out", folder / "run", *going_on])
    if result["end"] != NOTHING_TO_DO:
        return result
    # It was stopped between its end and its result, and what it measured is lost.
    shutil.rmtree(folder / "run")
    (folder / "result.json").unlink()
    return train(program, folder, flags)


def metrics_of(folder):
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def losses_of(folder):
    """Training losses of all steps."""
    losses = {line["step"]: line["loss"] for line in metrics_of(folder) if "gradient_norm" in line}
    return [losses[step] for step in sorted(losses)]


def evaluations_of(folder):
    """[(step, accuracy)] of all evaluations."""
    found = {line["step"]: line["eval_accuracy"] for line in metrics_of(folder) if "eval_accuracy" in line}
    return sorted(found.items())


def smoothed(runs):
    """Points of a curve: means over runs, and over a sixtieth of the steps."""
    means = [statistics.mean(step) for step in zip(*runs)]
    every = max(1, len(means) // 60)
    return [[first + every / 2, statistics.mean(means[first:first + every])] for first in range(0, len(means), every)]


def mean_points(runs):
    """Points of a curve: means over runs of [(x, y)] with the same x."""
    return [[points[0][0], statistics.mean(y for _, y in points)] for points in zip(*runs)]


def draw(plots, path, title, y_label, curves):
    """`curves`: {name: points}. `plots` is the program peers_plot."""
    series = [{"name": name, "points": points} for name, points in curves.items()]
    picture = {"title": title, "x_label": "step", "y_label": y_label, "series": series}
    drawn = subprocess.run([plots], input=json.dumps(picture), text=True, capture_output=True, check=True)
    path.write_text(drawn.stdout)
