"""Processes that answer line by line, and the contestants in them."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


class WorkerError(RuntimeError):
    pass


def environment(threads, folder):
    """The same for all: threads of OpenMP that wait must not spin while another one has its turn. What inductor
    has compiled is forgotten, unless the caller names a place for it."""
    return {
        "GOMP_SPINCOUNT": "2000", "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), **os.environ, "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error",
    }


class Process:
    def __init__(self, command, env, log, timeout):
        self.command, self.log, self.timeout = command, log, timeout
        self.errors = open(log, "a")
        self.popen = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=self.errors, text=True, bufsize=1)

    def ask(self, line):
        try:
            self.popen.stdin.write(line + "\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self.death()) from None
        if not select.select([self.popen.stdout], [], [], self.timeout)[0]:
            self.popen.kill()  # a late answer would be taken for that to the next line
            self.popen.wait()
            raise WorkerError(f"no answer to '{line}' in {self.timeout} s")
        answer = self.popen.stdout.readline()
        if not answer:
            raise WorkerError(self.death())
        result = json.loads(answer)
        if "error" in result:
            raise WorkerError(result["error"])
        return result

    def death(self):
        status = self.popen.wait()
        last = Path(self.log).read_text().strip().splitlines()[-3:]
        return f"{self.command[-1]} ended with status {status}: {' / '.join(last)}"

    def close(self):
        if self.popen.poll() is None:
            try:
                self.popen.stdin.write("quit\n")
                self.popen.stdin.close()
                self.popen.wait(10)
            except (OSError, subprocess.TimeoutExpired):
                self.popen.kill()
                self.popen.wait()
        self.popen.stdout.close()
        self.errors.close()


class Contestant:
    """One job in a process, which may have others."""

    def __init__(self, process, job, alone):
        self.process, self.name, self.alone = process, job["name"], alone
        self.ready = process.ask(json.dumps(job))

    def ask(self, command):
        return self.process.ask(f"use {self.name} {command}")

    def close(self):
        if self.alone:
            self.process.close()
        elif self.process.popen.poll() is None:
            self.process.ask(f"drop {self.name}")


class Workers:
    """Starts contestants: each in a process of its own, or those that share one by name, or (together) all of a
    side in one, which is for tests only."""

    def __init__(self, worker, env, folder, timeout, together):
        self.commands = {"ours": [str(worker)], "torch": [sys.executable, str(HERE / "rival.py")]}
        self.env, self.folder, self.timeout, self.together = env, folder, timeout, together
        self.shared = {}

    def process(self, side):
        log = self.folder / f"{side}.log"
        return Process(self.commands[side], self.env, log, self.timeout)

    def common(self, side, purpose):
        """A process of a side that stays."""
        found = self.shared.get(purpose)
        if found is None or found.popen.poll() is not None:
            self.shared[purpose] = self.process(side)
        return self.shared[purpose]

    def assistant(self):
        """PyTorch for what is not timed."""
        return self.common("torch", "assistant")

    def start(self, side, job, shared=None):
        purpose = side if self.together else shared
        process = self.common(side, purpose) if purpose else self.process(side)
        try:
            return Contestant(process, job, alone=purpose is None)
        except WorkerError:
            if purpose is None:
                process.close()
            raise

    def end(self, purposes):
        """Of processes that were shared."""
        for purpose in purposes:
            if purpose in self.shared:
                self.shared.pop(purpose).close()

    def close(self):
        self.end(list(self.shared))
