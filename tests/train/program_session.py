"""The program's commands in one process that has started already: starting one costs more than most of them do."""

import json
import os
import subprocess
from types import SimpleNamespace

# Before torch starts its threads: with others on the machine, two that wait for each other are slower than one.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["GOMP_SPINCOUNT"] = "2000"


class Session:
    """Runs commands like subprocess.run(..., capture_output=True, text=True)."""

    def __init__(self, program):
        self.program = program
        self.process = None

    def run(self, *arguments):
        if self.process is None:
            self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        words = [str(each) for each in arguments]
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        if not said:
            ended, self.process = self.process, None
            raise AssertionError(f"the program ended with code {ended.wait()} in {words}")
        ended = json.loads(said)
        return SimpleNamespace(returncode=ended["code"], stdout=ended["out"], stderr=ended["err"])

    def end(self):
        if self.process is not None:
            self.process.communicate()
