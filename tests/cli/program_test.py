#!/usr/bin/env python3
"""What only the program as a process shows: python3 program_test.py PATH_TO_PAREPROP"""

import fcntl
import os
import pathlib
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))


def environment(**changes):
    kept = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    return {**kept, "OMP_DISPLAY_ENV": "verbose", **changes}


class SpinCount(unittest.TestCase):
    """What OpenMP says of itself as it is loaded."""

    def spin_count(self, **changes):
        run = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True,
                             env=environment(**changes))
        self.assertEqual(run.returncode, 0, run.stderr)
        lines = [line for line in run.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
        self.assertEqual(len(lines), 1, "OpenMP was loaded once: " + run.stderr)
        return lines[0].split("'")[1]

    def test_the_program_sets_it(self):
        self.assertEqual(self.spin_count(), "2000")

    def test_the_user_decides(self):
        self.assertEqual(self.spin_count(GOMP_SPINCOUNT="7"), "7")
        self.assertEqual(self.spin_count(OMP_WAIT_POLICY="passive"), "0")

    def test_names_and_arguments_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            link, fifo = os.path.join(folder, "other-name"), os.path.join(folder, "fifo")
            os.symlink(PROGRAM, link)
            os.mkfifo(fifo)
            process = subprocess.Popen([link, "models", "--json", fifo], env=environment(),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with open(fifo, encoding="utf-8") as answer:  # opens when the program writes
                self.assertEqual(pathlib.Path(f"/proc/{process.pid}/comm").read_text().strip(),
                                 os.path.basename(os.path.realpath(PROGRAM)))
                self.assertEqual(pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes(),
                                 f"{link}\0models\0--json\0{fifo}\0".encode())
                self.assertIn("vit_tiny", answer.read())
            self.assertEqual(process.wait(), 0)


class FullDevice(unittest.TestCase):
    def test_is_exit_code_1_in_every_command(self):
        with tempfile.TemporaryDirectory() as folder, open("/dev/full", "wb") as full:
            small = ["--model", "vit_digits", "--depth", "1", "--batch", "2"]
            results = os.path.join(folder, "a.jsonl")
            bench = ["bench", *small, "--modes", "stored", "--rounds", "1", "--steps", "1"]
            subprocess.run([PROGRAM, *bench, "--out", results], check=True, capture_output=True)
            run = os.path.join(folder, "run")
            train = ["train", *small, "--steps", "1", "--data", "digits", "--out", run]
            for words in (["--help"], ["--version"], ["train", "--help"], ["models"],
                          ["plan", *small], ["verify", *small], bench,
                          ["report", results, "--out", os.path.join(folder, "a.html")],
                          ["trace", *small, "--steps", "1", "--out", os.path.join(folder, "t.json")],
                          ["demo", "--steps", "1", "--batch", "4"], train,
                          ["eval", "--run", run], ["models", "--json", "-"],
                          ["models", "--json", "/dev/full"]):
                ended = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(ended.returncode, 1, f"{words}: {ended.stderr}")
                self.assertIn("pareprop: cannot write", ended.stderr, words)


class LostReader(unittest.TestCase):
    def test_ends_no_training_but_is_exit_code_1_elsewhere(self):
        def run_without_reader(*words):
            reading, writing = os.pipe()
            os.close(reading)
            with open(writing, "wb") as lost:
                return subprocess.run([PROGRAM, *words], stdout=lost, stderr=subprocess.PIPE, text=True)
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run")
            train = run_without_reader("train", "--model", "vit_digits", "--depth", "1", "--steps", "2",
                                       "--out", out)
            self.assertEqual(train.returncode, 0, train.stderr)
            self.assertTrue(os.path.exists(os.path.join(out, "model.safetensors")))
        self.assertNotEqual(run_without_reader("models").returncode, 0)


class Terminal(unittest.TestCase):
    """A run on a terminal of 80 columns that is interrupted."""

    def test_the_line_of_progress_fits_and_is_gone_before_the_summary(self):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen(
                [PROGRAM, "train", "--model", "vit_digits", "--depth", "1", "--batch", "8", "--steps",
                 "1000000", "--threads", "1", "--out", os.path.join(folder, "run")],
                stdin=slave, stdout=slave, stderr=slave)
            os.close(slave)
            seen, asked = b"", False
            while True:
                try:
                    more = os.read(master, 65536)
                except OSError:  # nobody holds the other end any more
                    break
                if not more:
                    break
                seen += more
                if not asked and seen.count(b"samples/s") >= 3:
                    process.send_signal(signal.SIGINT)
                    asked = True
            self.assertEqual(process.wait(), 128 + signal.SIGINT, seen[-2000:])
        os.close(master)
        lines = [line for part in seen.decode().split("\n") for line in part.split("\r\x1b[K")]
        progress = [line for line in lines if " left  step " in line]
        self.assertGreaterEqual(len(progress), 3, seen[-2000:])
        for line in progress:
            self.assertRegex(line, r"^\d+:\d\d(:\d\d)? left  step \d+/1000000  loss ")
            self.assertLess(len(line.rstrip("\r")), 80, line)
        stopped = [line for line in lines if "stopped and saved" in line]
        self.assertEqual(len(stopped), 1)
        self.assertTrue(stopped[0].startswith("stopped and saved"), stopped)


class Completion(unittest.TestCase):
    def complete(self, *words):
        script = """source <("$1" completion bash); shift
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pareprop; printf '%s\\n' "${COMPREPLY[@]}" """
        run = subprocess.run(["bash", "--norc", "-c", script, "bash", PROGRAM, "pareprop", *words],
                             capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return run.stdout.split()

    def test_commands_flags_and_values(self):
        self.assertEqual(self.complete("tr"), ["train", "trace"])
        self.assertEqual(self.complete("train", "--learn"), ["--learning-rate"])
        self.assertEqual(self.complete("verify", "--model", "roberta_x"), ["roberta_xl", "roberta_xxl"])
        self.assertEqual(self.complete("train", "--preset", "rev-s"), ["rev-swin-tiny"])
        self.assertEqual(self.complete("train", "--mode", "p"), ["pareprop"])
        self.assertEqual(self.complete("report", "resul"), [], "names of files are bash's business")

    def test_other_shells_are_refused(self):
        run = subprocess.run([PROGRAM, "completion", "fish"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("expected bash, got 'fish'", run.stderr)


if __name__ == "__main__":
    unittest.main()
