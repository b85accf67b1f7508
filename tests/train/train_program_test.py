"""`pareprop train` from outside: processes that train together, kills, and restarts."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from PIL import Image

PROGRAM = sys.argv.pop(1)
ENVIRONMENT = {**os.environ, "GOMP_SPINCOUNT": "2000", "OMP_NUM_THREADS": "1"}
SMALL = ["train", "--model", "vit_cifar", "--width", "32", "--depth", "3", "--data", "digits", "--log-every", "1",
         "--initial-std", "0.15", "--eval-every", "1000", "--timeout", "60"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]


def run(*arguments, before=(), check=True):
    done = subprocess.run([*before, PROGRAM, *SMALL, *map(str, arguments)], env=ENVIRONMENT, capture_output=True,
                          text=True, timeout=300)
    if check and done.returncode != 0:
        raise AssertionError(f"{arguments}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def program(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True, timeout=300,
                          check=True).stdout


def wait_for(there, process):
    deadline = time.monotonic() + 60
    while not there():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"not there; exit code {process.poll()}")
        time.sleep(0.05)


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


class TrainProgram(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def weights(self, name):
        return (self.folder / name / "model.safetensors").read_bytes()

    def test_two_processes_compute_what_one_does(self):
        for mode in ("stored", "checkpoint", "reprop", "pareprop", "auto"):
            common = ["--mode", mode, "--steps", 100]
            run(*common, "--batch", 32, "--out", self.folder / f"{mode}-1")
            run(*common, "--batch", 16, "--nproc", 2, "--out", self.folder / f"{mode}-2")
            one, two = losses(self.folder / f"{mode}-1"), losses(self.folder / f"{mode}-2")
            self.assertEqual(len(one), 100)
            self.assertEqual(one.keys(), two.keys())
            worst = max(abs(one[step] - two[step]) for step in one)
            self.assertLess(worst, 1e-5, mode)

    def test_torchrun_is_the_same_as_nproc(self):
        common = ["--mode", "pareprop", "--steps", 20, "--batch", 16]
        run(*common, "--nproc", 2, "--out", self.folder / "own")
        run(*common, "--out", self.folder / "torchrun", before=TORCHRUN)
        self.assertEqual(self.weights("own"), self.weights("torchrun"))

    def test_a_trace_of_two_processes_has_what_they_send(self):
        run("--mode", "pareprop", "--steps", 4, "--batch", 16, "--nproc", 2, "--trace", 3, "--out", self.folder / "run")
        trace = json.loads((self.folder / "run" / "trace.json").read_text())
        slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertLessEqual({"data", "forward", "gradient", "other backward", "communication", "optimizer"},
                             {event["cat"] for event in slices})
        first_gradient = min(event["ts"] for event in slices if event["cat"] == "gradient")
        update = min(event["ts"] for event in slices if event["cat"] == "optimizer")
        buckets = [event for event in slices if event["name"].startswith("bucket ")]
        self.assertTrue(buckets)
        for event in buckets:
            self.assertGreater(event["ts"], first_gradient)
            self.assertGreater(event["dur"], 0)
            self.assertLess(event["ts"] + event["dur"], update)
        self.assertIn("communication", (self.folder / "run" / "trace.svg").read_text())

    def test_killed_runs_go_on_with_the_same_bits(self):
        kills = int(os.environ.get("PAREPROP_KILLS", "8"))
        seed = int(os.environ.get("PAREPROP_SEED", str(time.time_ns() % 100000)))
        chance = random.Random(seed)
        steps = 40 + 20 * kills
        common = ["--mode", "pareprop", "--dropout", "0.1", "--batch", 16, "--steps", steps]
        run(*common, "--out", self.folder / "whole")
        part = [*common, "--save-every", 5, "--out", self.folder / "part"]
        for _ in range(kills):
            process = subprocess.Popen([PROGRAM, *SMALL, *map(str, part), "--resume", "auto"], env=ENVIRONMENT,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0.3, 1.2))
            process.send_signal(signal.SIGKILL)
            process.wait()
        run(*part, "--resume", "auto")
        self.assertEqual(losses(self.folder / "part"), losses(self.folder / "whole"), f"seed {seed}")
        self.assertEqual(self.weights("part"), self.weights("whole"), f"seed {seed}")

    def test_sigterm_saves_and_stops(self):
        common = ["--mode", "stored", "--batch", 16, "--steps", 100000, "--out", self.folder / "run"]
        process = subprocess.Popen([PROGRAM, *SMALL, *map(str, common)], env=ENVIRONMENT, stderr=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
        wait_for(lambda: (self.folder / "run" / "metrics.jsonl").exists(), process)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertIn("--resume auto continues the run", out)
        self.assertTrue(list((self.folder / "run" / "checkpoints").glob("step-*")))

    def test_a_lost_rank_is_named_and_the_run_goes_on(self):
        common = ["--mode", "reprop", "--batch", 16, "--save-every", 5, "--out", self.folder / "run", "--resume", "auto",
                  "--timeout", "15"]
        process = subprocess.Popen([PROGRAM, *SMALL, *map(str, common), "--steps", "100000", "--nproc", "2"],
                                   env=ENVIRONMENT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        wait_for(lambda: list((self.folder / "run" / "checkpoints").glob("step-*")), process)
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        os.kill(int(children[-1]), signal.SIGKILL)
        _, err = process.communicate(timeout=120)
        self.assertNotEqual(process.returncode, 0)
        self.assertRegex(err, r"rank \d")
        done = max(int(folder.name[5:]) for folder in (self.folder / "run" / "checkpoints").glob("step-*"))
        run(*common, "--steps", done + 5, "--nproc", 2)
        self.assertIn(done + 5, losses(self.folder / "run"))
        other = run(*common, "--steps", done + 10)
        self.assertIn("by 2 processes, and goes on with --batch 16 in 1", other.stderr)
        refused = run(*[5 if word == 16 else word for word in common], "--steps", done + 15, "--nproc", 2, check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("was trained with --batch 16 by 1 process,", refused.stderr)

    def test_torchrun_restarts_from_the_last_checkpoint(self):
        common = ["--mode", "reprop", "--batch", 16, "--save-every", 5, "--out", self.folder / "run", "--resume", "auto",
                  "--timeout", "15", "--steps", 400]
        process = subprocess.Popen([*TORCHRUN[:-1], "--max-restarts", "2", "--no-python", PROGRAM, *SMALL,
                                    *map(str, common)], env=ENVIRONMENT, stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, text=True)
        wait_for(lambda: list((self.folder / "run" / "checkpoints").glob("step-*")), process)
        workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        os.kill(int(workers[-1]), signal.SIGKILL)
        _, err = process.communicate(timeout=200)
        self.assertEqual(process.returncode, 0, err[-3000:])
        self.assertEqual(sorted(losses(self.folder / "run")), list(range(1, 401)))
        self.assertIn("resuming from", err)

    def test_trained_networks_are_evaluated_and_used(self):
        folder = self.folder / "run"
        run("--mode", "stored", "--steps", 200, "--batch", 32, "--learning-rate", "3e-3", "--out", folder)
        found = json.loads(program("eval", "--run", folder, "--json", "-"))
        last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual(found["accuracy"], last["eval_accuracy"])
        self.assertGreater(found["accuracy"], 0.6)
        pixels = [[16 if x in (3, 4) and 1 <= y <= 6 else 0 for x in range(8)] for y in range(8)]
        image = Image.new("L", (8, 8))
        image.putdata([15 * level for row in pixels for level in row])
        image.save(self.folder / "one.png")
        guesses = json.loads(program("predict", "--run", folder, self.folder / "one.png", "--json", "-"))
        self.assertEqual(len(guesses["rows"][0]["guesses"]), 5)
        self.assertAlmostEqual(sum(g["probability"] for g in guesses["rows"][0]["guesses"]), 1.0, delta=0.5)
        (self.folder / "two.png").write_bytes((self.folder / "one.png").read_bytes()[:40])
        for wrong in ("two.png", "none.png"):
            done = subprocess.run([PROGRAM, "predict", "--run", folder, self.folder / wrong], capture_output=True,
                                  text=True, env=ENVIRONMENT)
            self.assertEqual(done.returncode, 1)
            self.assertIn(wrong, done.stderr)

    def test_wrong_configurations_are_refused(self):
        config = self.folder / "config.json"
        config.write_text('{"learning_rat": 1}')
        for arguments, said in (
                (["--config", config], "learning_rate"),
                (["--config", self.folder / "none.json"], "--config: cannot read"),
                (["--batch", "x"], "whole number"),
                (["--data", self.folder / "nothing"], "nothing"),
                (["--data", "persuasion"], "vit"),
                (["--batch", 5000], "5000"),
                (["--preset", "none"], "rev-vit-small")):
            with self.subTest(arguments):
                done = run(*arguments, "--out", self.folder / "run", check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
