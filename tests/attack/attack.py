"""What the attacks share: cases from a printed seed, the program as a process, and what must hold however it ends.

PAREPROP_SEED repeats the cases of a seed, PAREPROP_ATTACKS multiplies their number (unless set by 0.25)."""

import functools
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import dataclass
from pathlib import Path

from run_folder import faults

PROGRAM = os.path.abspath(sys.argv.pop(1))
SEED = int(os.environ.get("PAREPROP_SEED", time.time_ns() % 1000000))
ATTACKS = float(os.environ.get("PAREPROP_ATTACKS", "0.25"))  # a share that `make test` has time for
CPU_SECONDS = 200  # more than any case takes
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

# Tenths of a second to train, and the same bits however often it is interrupted.
SMALL = ["train", "--model", "vit_cifar", "--width", "16", "--depth", "2", "--data", "digits", "--batch", "16",
         "--initial-std", "0.15", "--log-every", "1", "--threads", "1", "--timeout", "30"]
# One image at a time, and larger ones: the evaluation after step 4 takes seconds.
SLOW_EVALUATION = [*SMALL, "--mode", "reprop", "--batch", "1", "--image-size", "64", "--eval-every", "4", "--steps",
                   "8"]
# The same of text: its tokenizer is trained first.
SMALL_TEXT = ["train", "--model", "roberta_base", "--width", "24", "--depth", "1", "--seq-len", "16", "--vocabulary",
              "300", "--batch", "4", "--log-every", "1", "--threads", "1", "--mode", "reprop"]

# What only a program that lost control says.
CRASHED = re.compile(r"terminate called|Traceback|Exception raised from|frame #\d|Segmentation fault|core dumped"
                     r"|AddressSanitizer|runtime error:|std::bad_alloc|basic_string|what\(\)|\[json\.exception")
# Escape sequences and all else that a terminal would obey: C0 without tab and newline, DEL, C1.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
CRASH_SIGNALS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}


@dataclass
class Ended:
    code: int  # negative: of a signal
    out: str
    err: str
    seconds: float

    def __str__(self):
        return (f"exit code {self.code} after {self.seconds:.1f} s\n--- out\n{self.out[-1000:]}\n"
                f"--- err\n{self.err[-2000:]}")


class Started:
    """The program in a session of its own. It writes to files: nobody has to read."""

    def __init__(self, *arguments, before=(), environment=None, **options):
        self.command = [*before, PROGRAM, *map(str, arguments)]
        self.streams = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]
        self.begun = time.monotonic()
        options = {"stdin": subprocess.DEVNULL, "stdout": self.streams[0], "stderr": self.streams[1], **options}
        self.process = subprocess.Popen(self.command, env={**ENVIRONMENT, **(environment or {})},
                                        start_new_session=True, **options)
        # Whatever becomes of this test, nothing that it started runs on without end.
        resource.prlimit(self.process.pid, resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))

    def said(self):
        for stream in self.streams:
            stream.seek(0)
        return [stream.read().decode("utf-8", "backslashreplace") for stream in self.streams]

    def wait_until(self, there, seconds=60):
        """Until there() is true; False when the program ended before."""
        deadline = time.monotonic() + seconds
        while not there():
            if self.process.poll() is not None:
                return bool(there())
            if time.monotonic() > deadline:
                raise AssertionError(f"it did not come within {seconds} s: {self.command}\n{self.said()}")
            time.sleep(0.01)
        return True

    def send(self, number):
        self.process.send_signal(number)

    def children(self):
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill(self):
        """With all that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for stream in self.streams:
            stream.close()

    def end(self, limit=60):
        begun = time.monotonic()
        try:
            self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it hangs: not ended after {limit} s: {self.command}\n{self.said()}") from None
        finally:
            seconds, said = time.monotonic() - begun, self.said()
            self.kill()
        return Ended(self.process.returncode, *said, seconds)


def run(*arguments, limit=60, **options):
    return Started(*arguments, **options).end(limit)


def copy(folder, to):
    shutil.copytree(folder, to, symlinks=True)
    return to


def cases(count):
    """Makes a test of (chance, folder) one of `count` cases. Each has a source of chance of its own, so that it is the
    same however many there are."""
    def decorate(test):
        @functools.wraps(test)
        def repeated(self):
            for number in range(max(1, round(count * ATTACKS))):
                with self.subTest(case=number), tempfile.TemporaryDirectory(dir=self.shared) as folder:
                    try:
                        test(self, random.Random(f"{SEED}/{self.id()}/{number}"), Path(folder))
                    finally:
                        while self.started:
                            self.started.pop().kill()
        return repeated
    return decorate


class Attack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """A folder for what all cases begin from; make() may be given by classes."""
        temporary = tempfile.TemporaryDirectory(prefix="pareprop-attack-")
        cls.addClassCleanup(temporary.cleanup)
        cls.shared = Path(temporary.name)
        cls.started = []
        cls.make()

    @classmethod
    def make(cls):
        pass

    def __str__(self):  # what every failure begins with
        return f"{super().__str__()} [PAREPROP_SEED={SEED}]"

    def start(self, *arguments, **options):
        self.started.append(Started(*arguments, **options))
        return self.started[-1]

    def expect_decent(self, done, sent=0):
        """However it ends: it did not crash, and what it said can be shown. `sent` is the signal that may end it."""
        if done.code < 0:
            self.assertEqual(-done.code, sent, f"ended by signal {-done.code}\n{done}")
        self.assertNotIn(done.code - 128, CRASH_SIGNALS, done)
        for text in (done.out, done.err):
            self.assertNotRegex(text, CRASHED, done)
            self.assertNotRegex(text, CONTROL, done)

    def expect_done(self, done):
        self.expect_decent(done)
        self.assertEqual(done.code, 0, done)

    def expect_refused(self, done, *words, codes=(1, 2)):
        self.expect_decent(done)
        self.assertIn(done.code, codes, done)
        self.assertRegex(done.err, r"(?m)^pareprop: .{8}", done)
        self.assertLess(len(done.err), 10000, done)
        for word in words:
            self.assertIn(word, done.err, done)

    def expect_whole(self, folder, leftovers=False):
        """Everything in a run's folder can be read; unless `leftovers`, nothing half-written is there either."""
        self.assertEqual(faults(folder, leftovers), [])

    def weights(self, folder):
        return (folder / "model.safetensors").read_bytes()


def main():
    print(f"PAREPROP_SEED={SEED} PAREPROP_ATTACKS={ATTACKS}", flush=True)
    unittest.main()
