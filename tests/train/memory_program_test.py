"""`pareprop train` with too little memory: it says so, whoever asked for the memory, and never aborts."""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1)
MIB = 1 << 20
# What a parallel region of two threads and a lane of two threads have.
ENVIRONMENT = {**os.environ, "GOMP_SPINCOUNT": "2000", "OMP_NUM_THREADS": "2"}
LARGE = ["--model", "vit_tiny", "--depth", "4", "--data", "synthetic", "--batch", "64", "--steps", "1", "--workers", "2"]


class WithLittleMemory(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.out = Path(self.temporary.name) / "run"

    def tearDown(self):
        self.temporary.cleanup()

    def train(self, *arguments, address_space=None):
        """With at most so many bytes of address space: what `ulimit -v` sets."""
        def limit():
            if address_space is not None:
                resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        return subprocess.run([PROGRAM, "train", *map(str, arguments), "--out", self.out], env=ENVIRONMENT,
                              preexec_fn=limit, capture_output=True, text=True, timeout=120)

    def own_size(self):
        """Bytes of address space that the program has before it trains, found by a refusal."""
        done = self.train(*LARGE, "--batch", 4096, address_space=8 << 30)
        self.assertEqual(done.returncode, 2, done.stderr)
        free = re.search(r"does not fit in [\d.]+ [KMG]iB \((\d+) bytes\)", done.stderr)
        self.assertIsNotNone(free, done.stderr)
        # What is free, less a tenth, was said.
        return (8 << 30) - int(free.group(1)) * 10 // 9

    def test_limits_of_the_address_space_are_found(self):
        done = self.train(*LARGE, "--mode", "stored",
                          address_space=self.own_size() + 900 * MIB)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for part in ("not enough memory (limited by ulimit -v): ", "vit_tiny in mode stored with batch 64", "weights ",
                     "mostly activations", "--mode auto would fit", "--force"):
            self.assertIn(part, done.stderr)
        self.assertFalse((self.out / "config.json").exists())

    def test_a_network_that_no_memory_holds_is_refused_in_seconds(self):
        begin = time.monotonic()
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        done = self.train("--model", "vit_gigantic", "--data", "synthetic", "--batch", 65536)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("vit_gigantic with batch 65536 does not fit", done.stderr)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertLess(max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss), 2 << 20)  # KiB

    def test_shapes_that_fit_in_no_machine_are_refused(self):
        done = self.train("--data", "synthetic", "--image-size", 16384, "--batch", 1048576)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("with batch 1048576 needs more memory than any machine has: out of memory: a tensor of", done.stderr)

    def test_absurd_sizes_are_refused_at_once(self):
        for flag, value in (("--depth", "100000"), ("--width", "1000000000"), ("--image-size", "100000"),
                            ("--vocabulary", "1000000000000"), ("--batch", "1000000000000000"),
                            ("--epochs", "1e300"), ("--steps", "9000000000000000000"),
                            ("--accumulate", "9000000000000000000"), ("--log-every", "9000000000000000000")):
            done = self.train(flag, value)
            self.assertEqual(done.returncode, 2, (flag, done.stderr))
            self.assertRegex(done.stderr, rf"^pareprop: {flag}: expected (at most|[\d.]+ to) \d")
            self.assertFalse(self.out.exists(), flag)

    def test_out_of_memory_is_a_message(self):
        size = self.own_size()
        said = set()
        for more in (40, 160, 280, 400, 480):
            done = self.train(*LARGE, "--mode", "pareprop", "--force", address_space=size + more * MIB)
            self.assertIn(done.returncode, (0, 1, 2), (more, done.returncode, done.stderr))
            self.assertNotIn("terminate called", done.stderr)
            if done.returncode != 0:
                last = done.stderr.splitlines()[-1]
                self.assertRegex(last, r"^(pareprop|libgomp): ", (more, done.stderr))
                said.add(re.sub(r"[\d.]+", "#", last)[:60])
            subprocess.run(["rm", "-rf", self.out], check=True)
        self.assertTrue(any("out of memory: a tensor of # bytes" in line for line in said), said)


if __name__ == "__main__":
    unittest.main()
