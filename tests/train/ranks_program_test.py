"""`pareprop train` in several processes, from outside: stopped ranks, ranks with other flags, names, absurd numbers."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

from started_runs import ENVIRONMENT, InFolder, children, kill_group, rank_of, wait_for

PROGRAM = sys.argv.pop(1)
SMALL = ["train", "--model", "vit_cifar", "--width", "32", "--depth", "3", "--data", "digits", "--mode", "reprop",
         "--batch", "16", "--eval-every", "1000000"]
TIMEOUT = 3


class RanksProgram(InFolder):
    def start(self, *flags, environment=ENVIRONMENT):
        process = subprocess.Popen([PROGRAM, *SMALL, "--timeout", str(TIMEOUT), *map(str, flags)], env=environment,
                                   stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, process_group=0)
        self.addCleanup(kill_group, process)
        return process

    def finished(self, out, *flags):
        """The result of a run, and the losses of its steps."""
        result = self.folder / "result.json"
        process = self.start("--nproc", 2, "--mode", "auto", "--batch", 32, "--steps", 4, "--log-every", 1, "--clip", 0,
                             "--dropout", 0.1, "--timeout", 60, "--json", result, "--out", out, *flags)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        return json.loads(result.read_text()), [line["loss"] for line in lines if "gradient_norm" in line]

    def test_all_ranks_compute_their_batches_in_the_same_parts(self):
        environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(self.folder / "cache")}
        refused = subprocess.run([PROGRAM, *SMALL, "--nproc", "2", "--mode", "auto", "--batch", "32", "--budget", "1KiB",
                                  "--out", str(self.folder / "refused")], env=environment, capture_output=True, text=True,
                                 timeout=120)
        least = int(re.search(r"smallest budget for this batch is [^(]*\((\d+) bytes\)", refused.stderr)[1])
        whole, expected = self.finished(self.folder / "whole")
        parts, found = self.finished(self.folder / "parts", "--budget", f"{int(1.02 * least)}B")
        self.assertEqual(whole["parts"], 1)
        self.assertGreater(parts["parts"], 1)
        self.assertLessEqual(parts["peak_bytes"], parts["budget_bytes"])
        self.assertEqual(len(found), 4)
        for a, b in zip(found, expected):
            self.assertAlmostEqual(a, b, delta=1e-4)

    def test_a_stopped_rank_ends_the_run_and_nothing_is_lost(self):
        for victim in (0, 1):
            out = self.folder / f"run-{victim}"
            process = self.start("--nproc", 2, "--steps", 1000000, "--save-every", 5, "--out", out)
            wait_for(lambda: list((out / "checkpoints").glob("step-*")), process)
            ranks = {rank_of(pid): pid for pid in children(process)}
            for pid in ranks.values():
                self.assertEqual(Path(f"/proc/{pid}/comm").read_text(), "pareprop\n")
            os.kill(ranks[victim], signal.SIGSTOP)
            began = time.monotonic()
            other = Path(f"/proc/{ranks[1 - victim]}/exe")
            wait_for(lambda: not other.exists(), process)
            self.assertLess(time.monotonic() - began, TIMEOUT + 10)
            _, err = process.communicate(timeout=30)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn(f"rank {victim}", err)
            self.assertNotIn("frame #", err)
            self.assertFalse(any(Path(f"/proc/{pid}/exe").exists() for pid in ranks.values()))
            done = max(int(folder.name[5:]) for folder in (out / "checkpoints").glob("step-*"))
            again = self.start("--nproc", 2, "--steps", done + 2, "--resume", "auto", "--save-every", 5, "--out", out)
            _, err = again.communicate(timeout=60)
            self.assertEqual(again.returncode, 0, err)

    def test_updates_inside_the_backward_pass_give_the_same_bits(self):
        weights = {}
        for update in ("after", "inside"):
            out = self.folder / update
            process = self.start("--nproc", 2, "--steps", 8, "--exact", "--clip", 0, "--mode", "pareprop",
                                 "--update", update, "--timeout", 60, "--out", out)
            _, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, err)
            weights[update] = (out / "model.safetensors").read_bytes()
        self.assertEqual(weights["inside"], weights["after"])

    def test_ranks_with_other_flags_are_told(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = []
        for rank, rate in enumerate(("1e-3", "2e-3")):
            variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            ranks.append(self.start("--learning-rate", rate, "--steps", 3, "--out", self.folder / "run",
                                    environment={**ENVIRONMENT, **variables}))
        for rank in ranks:
            _, err = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 2, err)
            self.assertIn("rank 1 has --learning-rate 0.002, rank 0 has 0.001", err)
        self.assertFalse((self.folder / "run").exists())

    def free_port(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return free.getsockname()[1]

    def start_rank(self, rank, world, port, *flags):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return self.start("--steps", 3, "--out", self.folder / "run", *flags, environment={**ENVIRONMENT, **variables})

    def test_ranks_that_wait_for_one_say_which(self):
        """The last one comes later, and finds that rank 0 and what it served have left."""
        port = self.free_port()
        ranks = [self.start_rank(0, 3, port)]
        time.sleep(0.7)
        ranks.append(self.start_rank(2, 3, port))
        for rank in ranks:
            _, err = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 1, err)
            self.assertRegex(err, rf"^pareprop: rank 1 of 3 did not join within {TIMEOUT * 1000} ms: ")
            self.assertEqual(err.count("\n"), 1, err)

    def test_what_another_rank_says_is_escaped(self):
        """A process that is not ours says who is missing, in words that a terminal would obey."""
        from torch.distributed import TCPStore
        port = self.free_port()
        rank = self.start_rank(0, 2, port, "--timeout", 30)
        store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
        store.set("pareprop/attempt_0/missing", "rank 1\x1b[2J\x1b]0;owned\x07\r\x9b31m" + 10000 * "x")
        _, err = rank.communicate(timeout=60)
        self.assertEqual(rank.returncode, 1, err)
        self.assertIn("rank 1\\", err, "escaped")
        self.assertNotRegex(err, r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
        self.assertLess(len(err), 1000)

    def test_absurd_numbers_are_refused(self):
        for flags in (["--nproc", "100000"], ["--nproc", "2", "--timeout", "1e300"], ["--timeout", "1e-9"]):
            began = time.monotonic()
            process = self.start("--out", self.folder / "run", *flags)
            _, err = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 2, err)
            self.assertIn("expected", err)
            self.assertLess(time.monotonic() - began, 10)


if __name__ == "__main__":
    unittest.main()
