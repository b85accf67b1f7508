"""`pareprop train --shard` from outside: kills at any time, lost ranks, bad flags, what is said."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import unittest

from started_runs import ENVIRONMENT, InFolder, children, kill_group, rank_of, wait_for

PROGRAM = sys.argv.pop(1)
SMALL = ["train", "--model", "vit_cifar", "--width", "48", "--depth", "3", "--data", "digits", "--mode", "pareprop",
         "--exact", "--batch", "4", "--eval-every", "1000000"]
SEED = int(os.environ.get("PAREPROP_SEED", random.randrange(1 << 30)))


class ShardProgram(InFolder):
    def start(self, *flags):
        process = subprocess.Popen([PROGRAM, *SMALL, *map(str, flags)], env=ENVIRONMENT, stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, text=True, process_group=0)
        self.addCleanup(kill_group, process)
        return process

    def train(self, *flags, code=0):
        process = self.start(*flags)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, err)
        return err

    def test_a_run_that_is_killed_at_any_time_goes_on_bit_for_bit(self):
        print("seed", SEED)
        chance = random.Random(SEED)
        flags = ["--nproc", 2, "--steps", 60, "--save-every", 1, "--keep", 2, "--shard", "gradients",
                 "--optimizer-state", "8bit"]
        self.train(*flags, "--out", self.folder / "whole")
        out = self.folder / "killed"
        checkpoints = out / "checkpoints"
        for _ in range(4):
            before = len(list(checkpoints.glob("step-*[0-9]")))
            newest = max(checkpoints.glob("step-*[0-9]"), default=None)
            process = self.start(*flags, "--out", out, "--resume", "auto")
            wait_for(lambda: max(checkpoints.glob("step-*[0-9]"), default=None) != newest, process)
            time.sleep(chance.uniform(0, 0.3))
            kill_group(process)
            self.assertGreaterEqual(len(list(checkpoints.glob("step-*[0-9]"))), min(before, 1), f"seed {SEED}")
            for folder in checkpoints.glob("step-*[0-9]"):
                self.assertEqual({file.name for file in folder.iterdir()},
                                 {"weights.safetensors", "optimizer-1-of-2.safetensors",
                                  "optimizer-2-of-2.safetensors", "state.json"}, f"seed {SEED}")
        err = self.train(*flags, "--out", out, "--resume", "auto")
        self.assertNotIn("not used", err)
        self.assertEqual((out / "model.safetensors").read_bytes(),
                         (self.folder / "whole/model.safetensors").read_bytes(), f"seed {SEED}")

    def test_a_lost_rank_ends_the_run_and_the_last_checkpoint_goes_on(self):
        for victim in (0, 1):
            out = self.folder / f"run-{victim}"
            flags = ["--nproc", 2, "--shard", "state", "--save-every", 5, "--timeout", 5, "--out", out]
            process = self.start(*flags, "--steps", 1000000)
            wait_for(lambda: list((out / "checkpoints").glob("step-*[0-9]")), process)
            ranks = {rank_of(pid): pid for pid in children(process)}
            os.kill(ranks[victim], signal.SIGKILL)
            _, err = process.communicate(timeout=30)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn(f"rank {victim}", err)
            self.assertNotIn("frame #", err)
            done = max(int(folder.name[5:]) for folder in (out / "checkpoints").glob("step-*[0-9]"))
            self.train(*flags, "--steps", done + 2, "--resume", "auto")

    def test_a_missing_shard_is_told_and_the_checkpoint_before_is_taken(self):
        out = self.folder / "run"
        flags = ["--nproc", 2, "--shard", "state", "--save-every", 2, "--out", out]
        self.train(*flags, "--steps", 4)
        (out / "checkpoints/step-00000004/optimizer-1-of-2.safetensors").unlink()
        err = self.train(*flags, "--steps", 6, "--resume", "auto")
        self.assertIn("not used: the checkpoint", err)
        self.assertIn("optimizer-1-of-2.safetensors is missing", err)
        self.assertIn("resuming from", err)

    def test_plan_counts_the_share_of_the_fullest_process(self):
        def plan(*flags):
            done = subprocess.run([PROGRAM, "plan", "--model", "vit_base", "--batch", "1", "--budget", "100GiB",
                                   *map(str, flags), "--json", "-"], env=ENVIRONMENT, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["predicted_bytes"]

        alone = plan()
        for processes in (2, 4):
            for shard in ("state", "gradients"):
                share = plan("--processes", processes, "--shard", shard)
                self.assertAlmostEqual(share["optimizer"] / alone["optimizer"] * processes, 1.0, delta=0.01)
        bad = subprocess.run([PROGRAM, "plan", "--model", "vit_tiny", "--shard", "all"], env=ENVIRONMENT,
                             capture_output=True, text=True)
        self.assertEqual(bad.returncode, 2)
        self.assertIn("--shard: expected none, state or gradients, got 'all'", bad.stderr)

    def test_a_trace_shows_when_gradients_and_weights_travel(self):
        for flags in (["--shard", "state"], ["--shard", "gradients"], ["--shard", "state", "--update", "inside"]):
            out = self.folder / flags[-1]
            self.train("--nproc", 2, *flags, "--steps", 2, "--trace", 2, "--out", out)
            trace = (out / "trace.json").read_text()
            self.assertIn("weights from their owners", trace)
            self.assertIn("gradients, " if "inside" in flags else "bucket 0, ", trace)

    def test_what_is_said(self):
        out = self.folder / "run"
        self.assertIn("--shard: expected none, state or gradients, got 'weights'",
                      self.train("--shard", "weights", "--out", out, code=2))
        err = self.train("--shard", "state", "--steps", 2, "--out", out)
        self.assertIn("--shard state: there is one process, so nothing is divided", err)
        err = self.train("--nproc", 2, "--shard", "state", "--steps", 4, "--batch", 2, "--resume", "auto", "--out", out)
        self.assertIn("was trained with --batch 4 by 1 process, and goes on with --batch 2 in 2: "
                      "the batches are the same, divided otherwise", err)
        err = self.train("--steps", 6, "--batch", 2, "--resume", "auto", "--out", out)
        self.assertIn("a micro-batch has 2 samples instead of 4", err)
        err = self.train("--nproc", 3, "--steps", 8, "--batch", 4, "--resume", "auto", "--out", out, code=2)
        self.assertIn("but now it is --batch 4 with 3", err)


if __name__ == "__main__":
    unittest.main()
