"""`pareprop train` interrupted from outside: signals in every phase, closed descriptors, pipes and terminals."""

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1)
ENVIRONMENT = {**os.environ, "GOMP_SPINCOUNT": "2000", "OMP_NUM_THREADS": "1"}
SMALL = ["train", "--model", "vit_cifar", "--width", "32", "--depth", "3", "--data", "digits", "--batch", "16",
         "--log-every", "1", "--mode", "stored"]
STOPPED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Lines:
    """Reads a pipe on a thread, so that one can wait for what is said."""

    def __init__(self, pipe):
        self.text = ""
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.read, args=(pipe,), daemon=True)
        self.thread.start()

    def read(self, pipe):
        for line in pipe:
            with self.changed:
                self.text += line
                self.changed.notify_all()

    def wait_for(self, part, seconds=60):
        with self.changed:
            if not self.changed.wait_for(lambda: part in self.text, seconds):
                raise AssertionError(f"{part!r} was not said: {self.text}")


def wait_until(there, seconds=60):
    deadline = time.monotonic() + seconds
    while not there():
        if time.monotonic() > deadline:
            raise AssertionError("it did not come")
        time.sleep(0.02)


def start(*arguments, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT, **options}
    return subprocess.Popen([PROGRAM, *SMALL, *map(str, arguments)], **options)


class Interrupted(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.out = self.folder / "run"

    def tearDown(self):
        self.temporary.cleanup()

    def checkpoints(self):
        return sorted(path.name for path in (self.out / "checkpoints").glob("step-*[0-9]"))

    def steps_done(self):
        metrics = self.out / "metrics.jsonl"
        return metrics.exists() and len(metrics.read_text().splitlines())

    def test_signals_while_it_trains_save_and_stop(self):
        for number in STOPPED:
            with self.subTest(number):
                process = start("--steps", 100000, "--eval-every", 100000, "--out", self.folder / str(number))
                self.out = self.folder / str(number)
                wait_until(lambda: self.steps_done() and self.steps_done() > 2)
                process.send_signal(number)
                begun = time.monotonic()
                out, _ = process.communicate(timeout=60)
                self.assertLess(time.monotonic() - begun, 5)
                self.assertEqual(process.returncode, 128 + number)
                self.assertIn("--resume auto", out)
                self.assertEqual(len(self.checkpoints()), 1)

    def test_a_signal_while_it_evaluates_saves_and_stops(self):
        # One image a batch of the evaluation is the slowest there is.
        process = start("--steps", 6, "--eval-every", 3, "--batch", 1, "--image-size", 96, "--out", self.out)
        wait_until(lambda: self.steps_done() and self.steps_done() == 3)
        time.sleep(0.3)  # in the evaluation, which takes many seconds
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begun, 4)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertEqual(self.checkpoints(), ["step-00000003"])
        self.assertNotIn("eval_loss", (self.out / "metrics.jsonl").read_text())

    def test_a_signal_before_the_first_step_ends_at_once_and_leaves_nothing(self):
        text = self.folder / "text.txt"
        text.write_text("".join(f"word{i * i % 99991} and {i} more of it.\n" for i in range(400000)))
        process = subprocess.Popen([PROGRAM, "train", "--model", "roberta_base", "--data", f"text:{text}", "--out",
                                    self.out], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        time.sleep(1.5)  # in the training of the tokenizer, which takes longer
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, err = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begun, 1)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertIn("stopped before the first step", err)
        self.assertFalse(self.out.exists())

    def test_a_signal_while_steps_are_measured_ends_at_once_and_leaves_nothing(self):
        network = ["--model", "vit_cifar", "--width", 64, "--depth", 6, "--batch", 512]
        planned = subprocess.run([PROGRAM, "plan", *map(str, network), "--json", "-"], env=ENVIRONMENT,
                                 capture_output=True, text=True, timeout=60)
        least = json.loads(planned.stdout)["smallest_budget_bytes"]
        cache = self.folder / "cache"
        process = start(*network, "--mode", "auto", "--budget", f"{least * 5 // 4}B", "--out", self.out,
                        env={**ENVIRONMENT, "XDG_CACHE_HOME": str(cache)})
        lines = Lines(process.stderr)
        lines.wait_for("measuring a few training steps")
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        process.wait(timeout=60)
        self.assertLess(time.monotonic() - begun, 1)
        lines.thread.join()
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertIn("stopped before the first step", lines.text)
        self.assertFalse(self.out.exists())
        self.assertFalse(list(cache.rglob("*.json")), "no times of steps that were not measured")

    def test_pipes_that_are_closed_do_not_end_a_run(self):
        process = start("--steps", 60, "--eval-every", 5, "--out", self.out)
        process.stdout.close()
        process.stderr.close()
        process.wait(timeout=60)
        self.assertGreaterEqual(process.returncode, 0)
        self.assertTrue((self.out / "model.safetensors").exists())

    def test_a_terminal_that_is_closed_does_not_end_a_run_under_nohup(self):
        parent, child = pty.openpty()
        process = start("--steps", 200, "--eval-every", 50, "--out", self.out, stdin=child, stdout=child, stderr=child,
                        start_new_session=True,
                        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        os.close(child)
        wait_until(lambda: self.steps_done() and self.steps_done() > 2)
        os.close(parent)
        process.send_signal(signal.SIGHUP)
        process.wait(timeout=60)
        self.assertGreaterEqual(process.returncode, 0)
        self.assertTrue((self.out / "model.safetensors").exists())

    def test_without_standard_descriptors_messages_do_not_get_into_files(self):
        subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", PROGRAM, *SMALL, "--steps", "8", "--eval-every",
                        "2", "--out", self.out], env=ENVIRONMENT, timeout=120)
        self.assertTrue((self.out / "model.safetensors").exists())
        for line in (self.out / "metrics.jsonl").read_text().splitlines():
            self.assertIn("step", json.loads(line))
        for path in self.out.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                self.assertNotIn(b"train: ", content, path)
                self.assertNotIn(b"validation loss 0.", content.replace(b"Validation loss", b""), path)
        self.assertEqual((self.out / ".lock").read_bytes(), b"")

    def test_a_finished_run_says_so(self):
        arguments = ["--steps", 2, "--out", self.out]
        start(*arguments).communicate(timeout=60)
        out, _ = start(*arguments, "--resume", "auto").communicate(timeout=60)
        self.assertIn("finished", out)
        _, err = (process := start("--steps", 1, "--out", self.out, "--resume", "auto")).communicate(timeout=60)
        self.assertEqual(process.returncode, 2)
        self.assertIn("the run has done 2 already", err)

    def test_runs_killed_at_any_moment_go_on_from_the_last_evaluation(self):
        """Default flags: nobody asked for checkpoints."""
        arguments = ["--epochs", 1000, "--eval-every", 20, "--out", self.out, "--resume", "auto"]
        for kill in range(3):
            process = start(*arguments)
            lines = Lines(process.stderr)
            lines.wait_for("step")
            wait_until(lambda: self.steps_done() and self.steps_done() > 50 * (kill + 1))
            process.kill()
            process.wait()
            lines.thread.join()
            process.stdout.close()
            process.stderr.close()
            evaluated = [json.loads(line)["step"] for line in (self.out / "metrics.jsonl").read_text().splitlines()
                         if "eval_loss" in line]
            # A kill between an evaluation and its checkpoint costs the steps since the one before.
            newest = int(self.checkpoints()[-1][5:])
            self.assertIn(newest, evaluated[-2:])


if __name__ == "__main__":
    unittest.main()
