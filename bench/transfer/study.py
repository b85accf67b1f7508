#!/usr/bin/env python3
"""What pretraining is worth to plain and reversible networks, and whether reversible ones learn as plain ones do.

    bench/transfer/study.py build/pareprop --out FOLDER [--studies transfer plain_or_reversible] [--seeds 0 1 2]
        [--plots build/bench/peers/peers_plot] [--quick]

transfer: a plain ViT is trained on some classes of Fashion-MNIST (the source), then on few images of the others (the
target; drawn anew for each seed): as it is, its head alone, and converted to a reversible network with each of --endings;
beside it are both networks from nothing. All take the same steps. plain_or_reversible: both networks of each family with
the same data, schedule and steps. For each, FOLDER/STUDY.md is a table, and with --plots FOLDER/STUDY*.svg are curves.

A run that has its result is not repeated, and one that was stopped goes on; so parts may be run apart, and the last call,
with all seeds and networks, writes the table of all. --quick is for trying the script: small networks, few steps, and
numbers that mean nothing."""

import argparse
import gzip
import json
import random
import statistics
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training_runs import command, draw, evaluations_of, losses_of, mean_points, result_of, smoothed, train

FASHION = "/usr/share/datasets/fashion-mnist"
LAST = 50  # steps whose mean training loss is the final one

# Recipes on top of the flags that all runs of the transfer have.
SOURCE = ["--augment", "none", "--initial-std", "0.08", "--learning-rate", "2e-3", "--batch", "64"]
FROM_NOTHING = ["--initial-std", "0.08", "--learning-rate", "1e-3", "--batch", "16", "--label-smoothing", "0.1"]
FINE_TUNE = ["--preset", "fine-tune", "--batch", "16"]
HEAD = ["--preset", "fine-tune-head", "--batch", "16"]

FAMILIES = {
    "vit": ("ViT, Fashion-MNIST", ["--preset", "fashion"]),
    "swin": ("Swin, Fashion-MNIST", ["--preset", "fashion-swin"]),
    "mvit": ("MViT, Fashion-MNIST", ["--preset", "fashion-mvit"]),
    "text": ("RoBERTa, persuasion", ["--data", "persuasion", "--model", "roberta_base", "--width", "192", "--depth", "4",
                                     "--seq-len", "64", "--vocabulary", "2048", "--batch", "16", "--learning-rate",
                                     "1e-3"]),
}
QUICK_SIZES = {
    "vit": ["--width", "32", "--depth", "1"],
    "swin": ["--width", "32", "--depth", "1,1"],
    "mvit": ["--width", "32", "--depth", "1,1,1"],
    "text": ["--width", "32", "--heads", "4", "--depth", "1", "--vocabulary", "300", "--seq-len", "16"],
}
PLAIN, REVERSIBLE = ["--plain", "--mode", "stored"], ["--mode", "pareprop"]
# "sum" has exactly the parameters of the plain network, "reversible" those that are usual for reversible ones.
NETWORKS = {"plain": PLAIN, "reversible": REVERSIBLE, "sum": [*REVERSIBLE, "--ending", "sum"]}


# Data: some classes of files of the MNIST family, as such files.

def read_idx(folder, half, what):
    for name in (f"{half}-{what}-ubyte.gz", f"{half}-{what}-ubyte"):
        if (Path(folder) / name).exists():
            content = (Path(folder) / name).read_bytes()
            return gzip.decompress(content) if name.endswith(".gz") else content
    sys.exit(f"{folder} has no {half}-{what}-ubyte, with or without .gz: install the package dataset-fashion-mnist, or name "
             "a folder of such files with --images")


def chosen(folder, half, classes, count, chance):
    """(image size, images, labels) of at most `count` images of each class, in random order; classes count from 0."""
    images, labels = read_idx(folder, half, "images-idx3"), read_idx(folder, half, "labels-idx1")
    height, width = struct.unpack(">8xII", images[:16])
    of_class = {label: [i for i, own in enumerate(labels[8:]) if own == label] for label in classes}
    picked = [(new, i) for new, label in enumerate(classes)
              for i in chance.sample(of_class[label], min(count, len(of_class[label])))]
    chance.shuffle(picked)
    size = height * width
    return (height, width), [images[16 + i * size:16 + (i + 1) * size] for _, i in picked], [new for new, _ in picked]


def subset(source, folder, classes, seed, train_count, test_count):
    """Writes a data set idx:FOLDER, where it is not there yet."""
    if folder.exists():
        return folder
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    for half, count in ("train", train_count), ("t10k", test_count):
        (height, width), images, labels = chosen(source, half, classes, count, chance)
        header = struct.pack(">IIII", 0x803, len(images), height, width)
        (partial / f"{half}-images-idx3-ubyte").write_bytes(header + b"".join(images))
        (partial / f"{half}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, len(labels)) + bytes(labels))
    partial.rename(folder)
    return folder


def parameters_of(folder):
    """How many numbers the weights of a run are."""
    with open(folder / "run" / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    total = 0
    for name, entry in header.items():
        count = 1
        for side in entry["shape"] if name != "__metadata__" else [0]:
            count *= side
        total += count
    return total


# Tables.

def percent(values, spread=False):
    text = f"{100 * statistics.mean(values):.1f} %"
    return text + (f" ± {50 * (max(values) - min(values)):.1f}" if spread else "")


def mebibytes(values):
    return f"{statistics.mean(values) / 2**20:.1f} MiB"


def table_of(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# The transfer.

class Transfer:
    def __init__(self, arguments):
        self.given = arguments
        self.out = arguments.out / "transfer"
        self.common = ["--precision", arguments.precision, "--threads", arguments.threads]
        self.source_data = subset(arguments.images, self.out / "data" / "source", arguments.source_classes, 0,
                                  arguments.source_images, arguments.test_images)
        self.rows, self.curves, self.ends = [], {}, {}

    def pretrained(self):
        flags = [*SOURCE, *PLAIN, *self.common, "--data", f"idx:{self.source_data}", "--model", "vit_cifar", "--width",
                 self.given.width, "--depth", self.given.depth, "--epochs", self.given.source_epochs]
        return train(self.given.program, self.out / "source", flags)["evaluation"]["accuracy"]

    def converted(self, ending):
        """Its weights, and its accuracy on the source before any training."""
        folder = self.out / "converted" / ending
        weights = folder / "weights"
        if not weights.exists():  # whole or not there
            command(self.given.program, "convert", "--reversible", "--ending", ending, "--run",
                    self.out / "source" / "run", "--out", weights)
        evaluated = result_of(self.given.program, folder / "on-source", "eval",
                              ["--run", weights, "--data", f"idx:{self.source_data}"])
        return weights, evaluated["accuracy"]

    def on_target(self, name, seed, flags):
        data = subset(self.given.images, self.out / "data" / f"target-{seed}", self.given.target_classes, seed,
                      self.given.few, self.given.test_images)
        folder = self.out / name / f"seed-{seed}"
        result = train(self.given.program, folder, [*flags, *self.common, "--data", f"idx:{data}", "--steps",
                                                    self.given.steps, "--seed", seed])
        print(f"{name}, seed {seed}: {percent([result['evaluation']['accuracy']])}", flush=True)
        return folder, result

    def add(self, title, name, recipe, on_source=None, head=None):
        """A row: of runs with `recipe`, and of those that train the head alone with `head` (flags of both)."""
        runs = [self.on_target(name, seed, recipe) for seed in self.given.seeds]
        alone = [self.on_target(f"{name}-head", seed, head)[1] for seed in self.given.seeds] if head else []
        accuracies = [evaluations_of(folder) for folder, _ in runs]
        self.curves[title] = mean_points(accuracies)
        self.ends[title] = [points[-1][1] for points in accuracies]
        self.rows.append([title, percent([on_source]) if on_source is not None else "",
                          percent([one["evaluation"]["accuracy"] for one in alone]) if alone else "",
                          percent([points[0][1] for points in accuracies]), percent(self.ends[title], spread=True),
                          mebibytes([result["activation_peak_bytes"] for _, result in runs])])
        return alone

    def add_all(self):
        given = self.given
        on_source, weights = self.pretrained(), ["--weights", self.out / "source" / "run"]
        alone = self.add("plain, pretrained", "plain", [*FINE_TUNE, *weights, "--mode", "stored"], on_source,
                         [*HEAD, *weights, "--mode", "stored"])
        heads = [one["evaluation"]["accuracy"] for one in alone]
        self.rows.append(["plain, pretrained, only the head trained", percent([on_source]), percent(heads), "",
                          percent(heads, spread=True), mebibytes([one["activation_peak_bytes"] for one in alone])])
        for ending in given.endings:
            converted, on_source = self.converted(ending)
            weights = ["--weights", converted, *REVERSIBLE]
            self.add(f"reversible, converted, {ending}", f"converted-{ending}", [*FINE_TUNE, *weights], on_source,
                     [*HEAD, *weights])
        sizes = ["--model", "vit_cifar", "--width", given.width, "--depth", given.depth]
        self.add("plain, from nothing", "plain-nothing", [*FROM_NOTHING, *PLAIN, *sizes])
        self.add("reversible, from nothing", "reversible-nothing", [*FROM_NOTHING, *REVERSIBLE, *sizes])

    def text(self):
        given = self.given
        worth = 100 * (statistics.mean(self.ends["plain, pretrained"]) - statistics.mean(self.ends["plain, from nothing"]))
        head = ["network", "source, at once", "head alone", "after one epoch", f"after {given.steps} steps", "activations"]
        return (f"ViT of {given.depth} blocks of width {given.width}; source: classes "
                f"{', '.join(map(str, given.source_classes))}, {given.source_epochs} epochs; target: classes "
                f"{', '.join(map(str, given.target_classes))}, {given.few} images each. Accuracies of test images; means "
                f"over seeds {', '.join(map(str, given.seeds))}, ± half of the range. Pretraining is worth {worth:.1f} "
                "points to the plain network.\n\n" + table_of(head, self.rows))


def transfer(arguments):
    study = Transfer(arguments)
    study.add_all()
    if arguments.plots:
        draw(arguments.plots, arguments.out / "transfer.svg", "Few images of other classes", "test accuracy", study.curves)
    return study.text()


# Both networks of each family.

def flags_of_family(family, arguments):
    title, flags = FAMILIES[family]
    flags = [*flags, "--precision", arguments.precision, "--threads", arguments.threads]
    if arguments.quick:
        flags += ["--batch", "4", *QUICK_SIZES[family]]
    if family == "text":
        return title, [*flags, "--steps", arguments.text_steps]
    data = f"fashion-mnist:{arguments.images}"
    if arguments.quick:
        few = subset(arguments.images, arguments.out / "data" / "few", range(10), 0, 4, 4)
        data = f"idx:{few}"
    return title, [*flags, "--data", data, "--epochs", arguments.epochs]


def plain_or_reversible(arguments):
    rows = []
    for family in arguments.families:
        title, flags = flags_of_family(family, arguments)
        curves, plain = {}, None
        for network in arguments.networks:
            if family == "mvit" and network == "sum":  # its stages widen by putting both streams side by side
                continue
            own = NETWORKS[network] + (["--class-token"] if (family, network) == ("vit", "sum") else [])
            results = []
            for seed in arguments.seeds:
                folder = arguments.out / "plain_or_reversible" / family / network / f"seed-{seed}"
                results.append(train(arguments.program, folder, [*flags, *own, "--seed", seed]))
                curves.setdefault(network, []).append(losses_of(folder))
                print(f"{title}, {network}, seed {seed}: {percent([results[-1]['evaluation']['accuracy']])}", flush=True)
            accuracies = [result["evaluation"]["accuracy"] for result in results]
            plain = accuracies if network == "plain" else plain
            apart = 100 * (statistics.mean(accuracies) - statistics.mean(plain)) if plain else 0.0
            rows.append([title, network, f"{parameters_of(folder):,}", percent(accuracies, spread=True),
                         f"{apart:+.1f}" if plain and network != "plain" else "",
                         f"{statistics.mean(result['evaluation']['loss'] for result in results):.4f}",
                         f"{statistics.mean(statistics.mean(run[-LAST:]) for run in curves[network]):.4f}",
                         mebibytes([result["activation_peak_bytes"] for result in results])])
        if arguments.plots:
            draw(arguments.plots, arguments.out / f"plain_or_reversible-{family}.svg", title, "training loss",
                 {name: smoothed(runs) for name, runs in curves.items()})
    head = ["task", "network", "parameters", "test accuracy", "points beside plain", "test loss", "training loss",
            "activations"]
    return (f"Means over seeds {', '.join(map(str, arguments.seeds))}, ± half of the range; training loss: mean of the last "
            f"{LAST} steps. Images: {arguments.epochs} epochs; text: {arguments.text_steps} steps.\n\n"
            + table_of(head, rows))


STUDIES = {"transfer": transfer, "plain_or_reversible": plain_or_reversible}


def make_quick(arguments):
    arguments.seeds, arguments.precision = arguments.seeds[:1], "fp32"
    arguments.width, arguments.depth = 32, 2
    arguments.source_epochs = arguments.epochs = 1
    arguments.source_images, arguments.few, arguments.test_images = 16, 4, 4
    arguments.steps = arguments.text_steps = 2
    arguments.endings = arguments.endings[:1]


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--images", default=FASHION, help="folder of Fashion-MNIST's files (default: %(default)s)")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of a run; 0: all cores")
    parser.add_argument("--plots", help="the program peers_plot, for curves (default: none)")
    parser.add_argument("--quick", action="store_true")
    of_transfer = parser.add_argument_group("transfer")
    of_transfer.add_argument("--source-classes", type=int, nargs="+", default=[0, 1, 3, 5, 7, 8])
    of_transfer.add_argument("--target-classes", type=int, nargs="+", default=[2, 4, 6, 9])
    of_transfer.add_argument("--source-images", type=int, default=6000, help="of each class")
    of_transfer.add_argument("--few", type=int, default=40, help="images of each class of the target (default: 40)")
    of_transfer.add_argument("--test-images", type=int, default=500, help="of each class (default: 500)")
    of_transfer.add_argument("--source-epochs", type=int, default=6)
    of_transfer.add_argument("--steps", type=int, default=500, help="on the target (default: 500)")
    of_transfer.add_argument("--width", type=int, default=128)
    of_transfer.add_argument("--depth", type=int, default=6)
    of_transfer.add_argument("--endings", nargs="+", default=["sum-x", "sum", "mean", "y2"])
    of_both = parser.add_argument_group("plain_or_reversible")
    of_both.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    of_both.add_argument("--networks", nargs="+", choices=NETWORKS, default=["plain", "reversible"],
                         help="'sum' is a reversible network with exactly the parameters of the plain one")
    of_both.add_argument("--epochs", type=int, default=6)
    of_both.add_argument("--text-steps", type=int, default=1500)
    arguments = parser.parse_args(words)
    # As many classes would have the same names, and the head of the source would stay.
    if len(arguments.source_classes) == len(arguments.target_classes):
        parser.error("--target-classes: expected another number of classes than of --source-classes")
    if arguments.quick:
        make_quick(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for study in arguments.studies:
        text = STUDIES[study](arguments) + "\n"
        (arguments.out / f"{study}.md").write_text(text)
        print(text)


if __name__ == "__main__":
    main()
