"""bench/transfer/study.py --quick, in one process of the program: what it writes, and that it repeats nothing.
Usage: transfer_test.py PATH_OF_program_session"""

import gzip
import json
import random
import re
import struct
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "train"), str(ROOT / "bench"), str(ROOT / "bench" / "transfer")]

import training_runs
from program_session import Session

SESSION = Session(sys.argv.pop(1))
RUN = []  # subcommands


def command(program, *words):
    RUN.append(words[0])
    done = SESSION.run(*words)
    if done.returncode != 0:
        sys.exit(done.stderr)


training_runs.command = command
import study

SIDE = 28


def write_images(folder):
    """Ten classes in the format of MNIST; the first pixel is the class."""
    chance = random.Random(7)
    for half, count in ("train", 20), ("t10k", 5):
        labels = [i % 10 for i in range(10 * count)]
        images = b"".join(bytes([label]) + chance.randbytes(SIDE * SIDE - 1) for label in labels)
        for what, header, content in (("images-idx3", struct.pack(">IIII", 0x803, len(labels), SIDE, SIDE), images),
                                      ("labels-idx1", struct.pack(">II", 0x801, len(labels)), bytes(labels))):
            (folder / f"{half}-{what}-ubyte.gz").write_bytes(gzip.compress(header + content))


def rows_of(path):
    lines = [line for line in path.read_text().splitlines() if line.startswith("| ")][2:]
    return {tuple(cells[:2]): cells for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)}


def setUpModule():
    unittest.addModuleCleanup(SESSION.end)


class Study(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.out = self.folder / "out"
        write_images(self.folder)
        RUN.clear()

    def study(self, *more):
        study.main(["program", "--out", str(self.out), "--images", str(self.folder), "--quick", "--threads", "1", *more])

    def test_the_transfer(self):
        self.study("--studies", "transfer")
        self.assertEqual((RUN.count("train"), RUN.count("convert"), RUN.count("eval")), (7, 1, 1))
        rows = rows_of(self.out / "transfer.md")
        self.assertEqual([cells[0] for cells in rows.values()],
                         ["plain, pretrained", "plain, pretrained, only the head trained", "reversible, converted, sum-x",
                          "plain, from nothing", "reversible, from nothing"])
        for cells in rows.values():
            self.assertRegex(cells[4], r"^[0-9.]+ % ± 0\.0$")
            self.assertGreater(float(cells[5].removesuffix(" MiB")), 0)
        # What the target was drawn from.
        data = self.out / "transfer" / "data" / "target-0"
        images = (data / "train-images-idx3-ubyte").read_bytes()[16:]
        labels = (data / "train-labels-idx1-ubyte").read_bytes()[8:]
        self.assertEqual(sorted(labels), [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4)
        self.assertEqual([images[i * SIDE * SIDE] for i in range(len(labels))], [(2, 4, 6, 9)[label] for label in labels])

        before = (self.out / "transfer.md").read_text()
        RUN.clear()
        self.study("--studies", "transfer")
        self.assertEqual(RUN, [])
        self.assertEqual((self.out / "transfer.md").read_text(), before)
        # A run that ended but could not say its result.
        (self.out / "transfer" / "plain" / "seed-0" / "result.json").unlink()
        self.study("--studies", "transfer")
        self.assertEqual(RUN, ["train", "train"])
        self.assertEqual(re.sub("[0-9.]+ MiB", "", (self.out / "transfer.md").read_text()),
                         re.sub("[0-9.]+ MiB", "", before))
        self.assertGreater(json.loads((self.out / "transfer" / "plain" / "seed-0" / "result.json").read_text())
                           ["activation_peak_bytes"], 0)
        with self.assertRaisesRegex(SystemExit, "is of a run with other flags"):
            self.study("--studies", "transfer", "--threads", "2")
        with self.assertRaises(SystemExit):
            self.study("--target-classes", "0", "1", "2", "3", "4", "9")

    def test_plain_and_reversible(self):
        self.study("--studies", "plain_or_reversible", "--networks", "plain", "reversible", "sum", "--families",
                   "vit", "mvit", "text")
        parameters = {row: int(cells[2].replace(",", "")) for row, cells in
                      rows_of(self.out / "plain_or_reversible.md").items()}
        vit, mvit, text = (study.FAMILIES[family][0] for family in ("vit", "mvit", "text"))
        self.assertEqual(set(parameters), {(vit, "plain"), (vit, "reversible"), (vit, "sum"), (mvit, "plain"),
                                           (mvit, "reversible"), (text, "plain"), (text, "reversible"), (text, "sum")})
        for family in vit, text:
            self.assertEqual(parameters[family, "sum"], parameters[family, "plain"])
            self.assertNotEqual(parameters[family, "reversible"], parameters[family, "plain"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
