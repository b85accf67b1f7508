"""`pareprop train` in folders that hold something: nothing of others is used, overwritten, removed or waited for."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SMALL = ["train", "--model", "vit_cifar", "--width", "16", "--depth", "2", "--data", "digits", "--batch", "16",
         "--log-every", "1", "--threads", "1", "--mode", "reprop", "--initial-std", "0.15"]
TEXT = ["train", "--model", "roberta_base", "--width", "24", "--depth", "1", "--seq-len", "16", "--vocabulary", "300",
        "--batch", "4", "--log-every", "1", "--threads", "1", "--mode", "reprop", "--data", "persuasion"]


def run(*arguments, seconds=60):
    return subprocess.run([PROGRAM, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=seconds)


def start(*arguments):
    return subprocess.Popen([PROGRAM, *map(str, arguments)], env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def lines_of(folder):
    """The whole lines of metrics.jsonl."""
    try:
        lines = (folder / "metrics.jsonl").read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def evaluated(folder):
    return [line["step"] for line in lines_of(folder) if "eval_loss" in line]


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class RunFolder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.shared = Path(temporary.name)
        cls.whole, cls.text = cls.shared / "whole", cls.shared / "text"
        for arguments, out in ((SMALL, cls.whole), (TEXT, cls.text)):
            done = run(*arguments, "--steps", 8, "--eval-every", 4, "--out", out)
            assert done.returncode == 0, done.stderr

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(dir=self.shared)
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.out = self.folder / "run"

    def copy(self, run_folder=None):
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(run_folder or self.whole, self.out)
        return self.out

    def succeeds(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, *arguments):
        done = run(*arguments)
        self.assertIn(done.returncode, (1, 2), (done.stdout, done.stderr))
        self.assertNotIn("filesystem error", done.stderr)
        return done.stderr

    def resume(self, *arguments):
        return ("train", "--out", self.out, "--resume", "auto", *arguments)

    def kill_after_lines(self, count, *arguments):
        process = start(*arguments, "--out", self.out)
        deadline = time.monotonic() + 60
        while len(lines_of(self.out)) < count and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.wait()
        self.assertGreaterEqual(len(lines_of(self.out)), count)

    def test_a_resume_that_fails_loses_nothing(self):
        for broken in ("metrics.jsonl", "tensorboard/events.out.tfevents.pareprop"):
            with self.subTest(broken):
                self.copy()
                (self.out / broken).unlink()
                if broken == "metrics.jsonl":
                    os.mkfifo(self.out / broken)
                else:
                    (self.out / broken).write_bytes(b"of another program, and long enough to be one" * 10)
                before = content(self.out)
                self.assertIn(broken, self.refused(*self.resume("--steps", 12)))
                self.assertEqual(content(self.out), before)

    def test_what_is_no_regular_file_is_refused_before_anything_is_written(self):
        outside = self.folder / "outside"
        for name in ("config.json", "classes.json", "best.safetensors", "model.safetensors", "run.html", "metrics.jsonl",
                     "trace.svg"):
            for kind in ("fifo", "device", "link", "folder"):
                if (name, kind) == ("trace.svg", "folder"):
                    continue  # only the trace is not written then
                with self.subTest(name=name, kind=kind):
                    self.copy()
                    path = self.out / name
                    outside.write_bytes(path.read_bytes() if path.exists() else b"mine")
                    mine = outside.read_bytes()
                    path.unlink(missing_ok=True)
                    if kind == "fifo":
                        os.mkfifo(path)
                    elif kind == "folder":
                        path.mkdir()
                    else:
                        path.symlink_to("/dev/zero" if kind == "device" else outside)
                    before = content(self.out)
                    self.assertIn(name, self.refused(*self.resume("--steps", 12)))
                    self.assertEqual(content(self.out), before)
                    self.assertEqual(outside.read_bytes(), mine)

    def test_folders_that_are_links_out_are_refused(self):
        for name, whole in (("checkpoints", self.whole), ("tensorboard", self.whole), ("tokenizer", self.text)):
            with self.subTest(name):
                self.copy(whole)
                outside = self.folder / name
                shutil.move(self.out / name, outside)
                (self.out / name).symlink_to(outside)
                before = content(outside)
                self.assertIn(name, self.refused(*self.resume("--steps", 12)))
                self.assertEqual(content(outside), before)

    def test_a_checkpoint_that_is_a_link_is_passed_over(self):
        self.copy()
        newest = self.out / "checkpoints" / "step-00000008"
        shutil.move(newest, self.folder / "elsewhere")
        newest.symlink_to(self.folder / "elsewhere")
        (self.out / "model.safetensors").unlink()
        done = self.succeeds(*self.resume())
        self.assertRegex(done.stderr, "not used: .*step-00000008' is incomplete or damaged: it is a link")
        self.assertIn("resuming from " + str(self.out / "checkpoints" / "step-00000004"), done.stderr)
        self.assertTrue((self.folder / "elsewhere" / "state.json").exists())

    def test_weights_and_tokenizers_that_are_links_out_are_not_evaluated(self):
        for name, whole in (("best.safetensors", self.whole), ("model.safetensors", self.whole),
                            ("tokenizer", self.text), ("tokenizer/vocab.json", self.text)):
            with self.subTest(name):
                self.copy(whole)
                outside = self.folder / Path(name).name
                shutil.move(self.out / name, outside)
                (self.out / name).symlink_to(outside)
                error = self.refused("eval", "--run", self.out, *(["--last"] if name == "model.safetensors" else []))
                self.assertIn(name, error)
                self.assertIn("link", error)

    def test_a_foreign_configuration_is_refused_with_what_to_do(self):
        self.out.mkdir()
        for foreign in ('{"mine": 1}', "{}", '{"model": "vit_cifar"}', "[]", "mine"):
            for arguments in (SMALL, ["train"]):
                with self.subTest(foreign=foreign, arguments=arguments[:2]):
                    (self.out / "config.json").write_text(foreign)
                    error = self.refused(*arguments, "--steps", 4, "--out", self.out, "--resume", "auto")
                    self.assertIn("config.json", error)
                    self.assertIn("another folder with --out", error)
                    self.assertEqual(content(self.out), {"config.json": foreign.encode()} | (
                        {".lock": b""} if (self.out / ".lock").exists() else {}))

    def test_an_attempt_without_a_checkpoint_is_kept_whole(self):
        self.kill_after_lines(3, *SMALL, "--steps", 100000, "--eval-every", 100000)
        before = content(self.out)
        done = self.succeeds(*SMALL, "--steps", 4, "--width", 32, "--out", self.out, "--resume", "auto")
        for name, aside in (("config.json", "config-1.json"), ("classes.json", "classes-1.json"),
                            ("metrics.jsonl", "metrics-1.jsonl")):
            self.assertIn(aside, done.stderr)
            self.assertEqual((self.out / aside).read_bytes(), before[name])
        self.assertEqual(json.loads((self.out / "config.json").read_text())["width"], 32)

    def test_what_others_left_is_theirs(self):
        self.out.mkdir()
        names = ["movie.mkv.partial-999999999", "thesis.partial-999999999-0", "model.safetensors.partial-x"]
        for name in names:
            (self.out / name).write_text("mine")
        left = self.out / "run.html.partial-999999999-0"
        left.write_text("half a page")
        self.succeeds(*SMALL, "--steps", 2, "--out", self.out)
        self.assertEqual([name for name in names if not (self.out / name).exists()], [])
        self.assertFalse(left.exists())

    def test_folders_in_the_place_of_files_are_refused_at_the_start(self):
        for name in ("model.safetensors", "best.safetensors", "run.html"):
            for inside in (False, True):
                for resume in ([], ["--resume", "auto"]):
                    with self.subTest(name=name, inside=inside, resume=resume):
                        shutil.rmtree(self.out, ignore_errors=True)
                        (self.out / name).mkdir(parents=True)
                        if inside:
                            (self.out / name / "mine").write_text("mine")
                        error = self.refused(*SMALL, "--steps", 2, "--out", self.out, *resume)
                        self.assertIn(f"{name} is a folder", error)
                        self.assertIn("--out", error)
                        self.assertTrue((self.out / name).is_dir())

    def test_the_best_weights_of_steps_that_are_trained_again_do_not_count(self):
        common = [*SMALL, "--learning-rate", "3e-3", "--steps", 40, "--eval-every", 20]
        self.succeeds(*common, "--out", self.out)
        shutil.rmtree(self.out / "checkpoints" / "step-00000040")
        self.succeeds(*self.resume("--learning-rate", "1e-6"))
        losses = {line["step"]: line["eval_loss"] for line in lines_of(self.out) if "eval_loss" in line}
        best = min(losses, key=losses.get)
        found = json.loads(self.succeeds("eval", "--run", self.out, "--json", "-").stdout)
        self.assertIn(f"of step {best} ", found["weights"])
        self.assertAlmostEqual(found["loss"], losses[best], places=4)

    def test_the_best_weights_come_back_from_the_checkpoint(self):
        """Those of step 4 were replaced by better ones, of a step that is not trained the same way again."""
        self.copy()
        shutil.rmtree(self.out / "checkpoints" / "step-00000008")
        done = self.succeeds(*self.resume("--learning-rate", "1", "--warmup", "0", "--clip", "0", "--mode", "stored"))
        self.assertIn("best validation loss", done.stdout)
        self.assertIn("at step 4;", done.stdout)

    def test_an_evaluation_is_logged_once(self):
        self.copy()
        (self.out / "model.safetensors").unlink()
        self.succeeds(*self.resume())
        self.assertEqual(evaluated(self.out), [4, 8])
        self.assertEqual((self.out / "model.safetensors").read_bytes(), (self.whole / "model.safetensors").read_bytes())

        # As a kill between an evaluation and the checkpoint that knows it leaves it.
        shutil.rmtree(self.out)
        common = [*SMALL, "--steps", 8, "--eval-every", 4, "--save-every", 4]
        process = start(*common, "--out", self.out)
        deadline = time.monotonic() + 60
        while len(lines_of(self.out)) < 4 and time.monotonic() < deadline:
            pass
        while not evaluated(self.out) and time.monotonic() < deadline:
            process.send_signal(signal.SIGCONT)
            time.sleep(0.001)
            process.send_signal(signal.SIGSTOP)
        process.kill()
        process.wait()
        self.succeeds(*common, "--out", self.out, "--resume", "auto")
        self.assertEqual(evaluated(self.out), [4, 8])

    def test_only_files_that_are_there_are_listed(self):
        process = subprocess.Popen([PROGRAM, *SMALL, "--steps", "100000", "--eval-every", "100000", "--out", self.out],
                                   env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        deadline = time.monotonic() + 60
        while len(lines_of(self.out)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        listed = out.split(f"in {self.out}: ")[1].strip().split(", ")
        self.assertEqual([name for name in listed if not (self.out / name).exists()], [])
        self.assertIn("model.safetensors", listed)

    def test_a_folder_that_is_removed_during_an_evaluation_ends_it(self):
        process = subprocess.Popen([PROGRAM, *SMALL, "--batch", "1", "--image-size", "96", "--eval-every", "2", "--steps",
                                    "4", "--out", self.out], env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while len(lines_of(self.out)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)  # in the evaluation, which takes many seconds
        self.out.rename(self.folder / "elsewhere")
        begun = time.monotonic()
        _, error = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begun, 3)
        self.assertEqual(process.returncode, 1)
        self.assertIn("was removed or replaced", error)


if __name__ == "__main__":
    unittest.main()
