"""Runs of several processes that tests start, look into and kill."""

import os
import signal
import tempfile
import time
import unittest
from pathlib import Path

ENVIRONMENT = {**os.environ, "GOMP_SPINCOUNT": "2000", "OMP_NUM_THREADS": "1"}


def wait_for(there, process):
    deadline = time.monotonic() + 60
    while not there():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"not there; exit code {process.poll()}")
        time.sleep(0.02)


def children(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def rank_of(pid):
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(int(entry[5:]) for entry in entries if entry.startswith(b"RANK="))


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.stderr.close()
    process.wait()


class InFolder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)
