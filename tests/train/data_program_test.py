"""`pareprop train`, `eval` and `predict` from outside, on data that is odd, damaged or changes meanwhile."""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from PIL import Image

PROGRAM = sys.argv.pop(1)
ENVIRONMENT = {**os.environ, "GOMP_SPINCOUNT": "2000", "OMP_NUM_THREADS": "1"}
SMALL = ["--model", "vit_tiny", "--width", "48", "--depth", "1", "--image-size", "32", "--batch", "4", "--steps", "3"]
TEXT = ["--model", "roberta_base", "--width", "96", "--depth", "1", "--seq-len", "16", "--batch", "2", "--steps", "2",
        "--vocabulary", "300"]


def run(command, *arguments, seconds=120):
    return subprocess.run([PROGRAM, command, *arguments], env=ENVIRONMENT, capture_output=True, timeout=seconds)


def noise(chance, side):
    return Image.frombytes("RGB", (side, side), chance.randbytes(3 * side * side))


class DataProgram(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.chance = random.Random(7)

    def photos(self, classes, side=16):
        folder = self.folder / "photos"
        for half in ("train", "val"):
            for name in classes:
                inside = os.fsencode(folder / half) + b"/" + name
                os.makedirs(inside)
                for i in range(6):
                    noise(self.chance, side).save(os.fsdecode(inside) + f"/{i}.png")
        return folder

    def succeeds(self, command, *arguments):
        done = run(command, *map(os.fsdecode, map(str, arguments)))
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done

    def refused(self, *arguments, code=2):
        done = run("train", *map(str, arguments), "--out", str(self.folder / "refused"))
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr.decode()

    def test_folders_that_are_not_called_in_utf8_are_classes(self):
        photos, out = self.photos([b"caf\xe9", b"tea"]), self.folder / "run"
        self.succeeds("train", *SMALL, "--data", f"folder:{photos}", "--out", out)
        self.assertEqual(json.loads((out / "classes.json").read_text())["classes"], ["caf\\xe9", "tea"])
        self.succeeds("eval", "--run", out)
        guessed = self.succeeds("predict", "--run", out, photos / "val" / "tea" / "0.png", "--json", "-")
        names = {guess["name"] for guess in json.loads(guessed.stdout)["rows"][0]["guesses"]}
        self.assertEqual(names, {"caf\\xe9", "tea"})

    def test_what_cannot_be_read_is_left_out_and_counted(self):
        photos, out = self.photos([b"a", b"b"]), self.folder / "run"
        (photos / "train" / "a" / "self.png").symlink_to("self.png")
        os.mkfifo(photos / "train" / "b" / "pipe.png")
        (photos / "train" / "loop").symlink_to("loop")
        done = self.succeeds("train", *SMALL, "--steps", "8", "--data", f"folder:{photos}", "--out", out)
        self.assertIn(b"self.png': Too many levels", done.stderr)
        self.assertIn(b"pipe.png': it is a pipe", done.stderr)
        (photos / "val" / "a" / "0.png").unlink()
        (photos / "val" / "a" / "1.png").write_bytes(b"")
        found = json.loads(self.succeeds("eval", "--run", out, "--json", "-").stdout)
        self.assertEqual((found["rows"], found["skipped"]), (10, 1))  # the first is not listed any more

    def test_images_that_change_during_training_end_nothing(self):
        photos, out = self.photos([b"a", b"b"], side=256), self.folder / "run"
        process = subprocess.Popen([PROGRAM, "train", *SMALL, "--steps", "200", "--eval-every", "1000", "--workers", "2", "--data",
                                    f"folder:{photos}", "--out", str(out)], env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 100
        while not (out / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < deadline:
            pass  # until the files are listed
        (photos / "train" / "a" / "5.png").unlink()
        files = sorted(photos.glob("*/*/*.png"))
        content = {file: file.read_bytes() for file in files}
        cut = files[0]
        while process.poll() is None and time.monotonic() < deadline:
            cut.write_bytes(content[cut])
            cut = self.chance.choice(files)
            with open(cut, "r+b") as opened:  # in place, while it may be read
                opened.truncate(self.chance.randrange(len(content[cut])))
        error = process.communicate(timeout=10)[1]
        self.assertEqual(process.returncode, 0, error.decode()[-2000:])
        self.assertRegex(error, rb"\d+ images? left out:")
        # Messages name the first of them, the page all.
        self.assertRegex((out / "run.html").read_text(), r"train/a/5\.png\S*: No such file or directory")

    def test_an_evaluation_of_nothing_is_said_once(self):
        photos, out = self.photos([b"a", b"b"]), self.folder / "run"
        process = subprocess.Popen([PROGRAM, "train", *SMALL, "--steps", "400", "--eval-every", "400", "--data",
                                    f"folder:{photos}", "--out", str(out)], env=ENVIRONMENT, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 100
        while not (out / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        (photos / "val").rename(self.folder / "away")
        said, error = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, error)
        self.assertEqual(error.count("no evaluation, because"), 1, error)
        self.assertNotIn("nan", said + error)
        self.assertIn("12 images left out:", error)
        self.assertEqual(error.count("No such file"), 5, error)
        self.assertIn("and 7 more", error)
        self.assertNotIn("eval_loss", (out / "metrics.jsonl").read_text())
        self.assertNotIn("best.safetensors", said)
        (self.folder / "away").rename(photos / "val")
        self.assertIn("finished", self.succeeds("train", "--out", out, "--resume", "auto").stdout.decode())

    def test_eval_compares_the_kind_of_data_first(self):
        self.succeeds("train", *TEXT, "--data", "persuasion", "--out", self.folder / "text")
        done = run("eval", "--run", str(self.folder / "text"), "--data", "digits")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"'digits' is images, but the run was trained on text", done.stderr)
        self.assertNotIn(b"--seq-len", done.stderr)
        self.succeeds("train", *SMALL, "--mixup", "0.1", "--data", "digits", "--out", self.folder / "images")
        done = run("eval", "--run", str(self.folder / "images"), "--data", "persuasion")
        self.assertIn(b"'persuasion' is text, but the run was trained on images", done.stderr)
        self.assertNotIn(b"--mixup", done.stderr)

    def test_a_dry_run_has_configuration_and_plan_as_json(self):
        common = [*SMALL, "--data", "digits", "--dry-run"]
        self.succeeds("train", *common, "--json", self.folder / "plan.json")
        found = json.loads((self.folder / "plan.json").read_text())
        self.assertEqual(found["config"]["width"], 48)
        self.assertGreater(len(found["plan"]["modes"]), 1)
        again = json.loads(self.succeeds("train", *common, "--json", "-").stdout)
        self.assertEqual((again["config"], again["plan"]["blocks"]), (found["config"], found["plan"]["blocks"]))
        self.assertEqual(json.loads(self.succeeds("train", *common).stdout), found["config"])

    def test_weights_of_a_grey_run_begin_a_grey_run(self):
        common = [*SMALL, "--data", "digits"]
        self.succeeds("train", *common, "--out", self.folder / "one")
        weights = self.folder / "one" / "model.safetensors"
        self.succeeds("train", *common, "--weights", weights, "--out", self.folder / "two")
        damaged = bytearray(weights.read_bytes())
        damaged[-100] ^= 1
        (self.folder / "damaged").write_bytes(damaged)
        self.assertIn("does not match its checksum",
                      self.refused(*common, "--weights", self.folder / "damaged", code=1))
        os.mkfifo(self.folder / "pipe")
        self.assertIn("it is a pipe; expected a regular file",
                      self.refused(*common, "--weights", self.folder / "pipe", code=1))
        self.assertIn("is a folder without weights", self.refused(*common, "--weights", self.folder))

    def test_text_on_one_line_is_trained_and_evaluated_on(self):
        (self.folder / "line.txt").write_text(" ".join(f"word{i % 97}" for i in range(3000)))
        self.succeeds("train", *TEXT, "--data", self.folder / "line.txt", "--out", self.folder / "run")
        found = json.loads(self.succeeds("eval", "--run", self.folder / "run", "--json", "-").stdout)
        self.assertGreater(found["rows"], 5)

    def test_refusals_say_what_does_not_fit(self):
        roberta = ["--model", "roberta_base", "--data", "digits"]
        self.assertIn("roberta_base is for text, but the data 'digits' is images", self.refused(*roberta))
        vit = ["--model", "vit_tiny", "--data", "persuasion"]
        self.assertIn("vit_tiny is for images, but the data 'persuasion' is text", self.refused(*vit))
        latin = run("train", *SMALL, "--data", os.fsdecode(b"folder:/tmp/caf\xe9"), "--out", str(self.folder / "refused"))
        self.assertIn(b"expected text in UTF-8, got", latin.stderr)
        begin = time.monotonic()
        self.assertIn("workers", self.refused(*SMALL, "--data", "digits", "--workers", "100000"))
        self.assertLess(time.monotonic() - begin, 10)
        deep = self.folder / "tokenizer.json"
        deep.write_text("[" * 1_000_000)
        self.assertIn("nested more than 100 deep",
                      self.refused(*TEXT, "--data", "persuasion", "--tokenizer", deep))


if __name__ == "__main__":
    unittest.main()
