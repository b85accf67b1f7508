#!/usr/bin/env python3
"""What only the program as a process shows: python3 program_test.py PATH_TO_PAREPROP"""

import fcntl
import os
import pathlib
import json
import pty
import re
import resource
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


    def test_started_by_the_dynamic_loader(self):
        """What /proc/self/exe leads to is the loader then."""
        with open(PROGRAM, "rb") as file:
            loader = re.search(rb"/lib[^\0]*/ld-[^\0]*", file.read(8192))
        self.assertIsNotNone(loader)
        run = subprocess.run([loader[0].decode(), PROGRAM, "models", "--help"], capture_output=True, text=True,
                             env=environment(OMP_DISPLAY_ENV="false"))
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn("List the models", run.stdout)


def run_measured(*words, address_space=None, **variables):
    """Exit code, standard output and error, and the resources that the program used."""
    def limit():
        if address_space is not None:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([PROGRAM, *words], stdout=out, stderr=err, preexec_fn=limit,
                                   env={**os.environ, **variables})
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return process.returncode, out.read(), err.read(), usage


LITTLE = 1000000 << 10  # bytes of addresses: what the program itself takes, and 200 MiB


class WhatCannotBe(unittest.TestCase):
    def test_absurd_numbers_are_refused_within_a_second(self):
        with tempfile.TemporaryDirectory() as folder:
            for flag, value in (("--depth", "100000"), ("--depth", "10000"), ("--threads", "100000"),
                                ("--epochs", "1e300")):
                code, _, err, usage = run_measured("train", flag, value, "--out", os.path.join(folder, "run"))
                self.assertEqual(code, 2, err)
                self.assertRegex(err, rf"^pareprop: {flag}: expected ")
                self.assertLess(usage.ru_utime, 1.0, f"{flag} {value}: seconds of the processor")
            self.assertEqual(os.listdir(folder), [])

    def test_a_network_that_does_not_fit_is_refused_before_it_is_made(self):
        limit = 3000000 << 10  # as ulimit -v 3000000
        for words in (["trace", "--model", "vit_gigantic", "--batch", "64", "--out", "/dev/null"],
                      ["verify", "--model", "vit_huge", "--batch", "8"],
                      ["verify", "--model", "vit_huge", "--batch", "8", "--modes", "reprop"]):
            code, out, err, usage = run_measured(*words, address_space=limit)
            self.assertEqual((code, out), (2, ""), err)
            self.assertRegex(err, rf"^pareprop: not enough memory \(limited by ulimit -v\): {words[2]} with batch {words[4]} "
                                  r"does not fit in .*: weights .*, mostly ")
            self.assertEqual(err.count("\n"), 1)
            self.assertLess(usage.ru_maxrss, 1 << 20, "kilobytes")
            self.assertNotIn("--accumulate", err, "it has no such flag")

    def test_the_largest_batch_is_named(self):
        small = ["trace", "--model", "vit_tiny", "--mode", "stored", "--out", "/dev/null", "--steps", "1"]
        code, _, err, _ = run_measured(*small, "--batch", "4096", address_space=LITTLE)
        self.assertEqual(code, 2, err)
        largest = int(re.search(r"the largest batch for this budget is (\d+)", err)[1])
        self.assertGreater(largest, 1)
        code, _, err, _ = run_measured(*small, "--batch", str(largest + 1), address_space=LITTLE)
        self.assertEqual(code, 2, err)

    def test_a_batch_that_fits_in_parts_only_is_traced_in_parts(self):
        trace = ["trace", "--model", "vit_digits", "--depth", "1", "--steps", "1", "--out", "/dev/null", "--json", "-"]
        code, _, err, _ = run_measured(*trace, "--mode", "reprop", "--batch", "1000000", address_space=LITTLE)
        self.assertEqual(code, 2, err)
        largest = int(re.search(r"the largest batch for this budget is (\d+)", err)[1])
        with tempfile.TemporaryDirectory() as cache:
            code, out, err, _ = run_measured(*trace, "--mode", "auto", "--batch", str(2 * largest),
                                             address_space=LITTLE, XDG_CACHE_HOME=cache)
        self.assertEqual(code, 0, err)
        self.assertGreater(json.loads(out)["parts"], 1)


class Models(unittest.TestCase):
    def models(self, address_space):
        code, out, err, _ = run_measured("models", "--json", "-", address_space=address_space)
        self.assertEqual(code, 0, err)
        answer = json.loads(out)
        for row in answer["rows"]:
            self.assertEqual(row["fits"], row["train_bytes"] <= answer["free_bytes"], row["model"])
        return answer

    def test_fits_counts_the_optimizer(self):
        whole = 8 << 30
        before = self.models(whole)
        row = next(row for row in before["rows"] if row["model"] == "vit_large")
        between = int(row["step_bytes"] + row["train_bytes"]) // 2
        after = self.models(whole - int(before["free_bytes"]) + between)
        self.assertTrue(row["step_bytes"] < after["free_bytes"] < row["train_bytes"], after["free_bytes"])
        self.assertFalse(next(each for each in after["rows"] if each["model"] == "vit_large")["fits"])


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


def on_terminal(words, interrupt_after=None, **variables):
    """The program on a terminal of 80 columns, interrupted once it has said something three times: exit code and what
    was shown."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen([PROGRAM, *words], stdin=slave, stdout=slave, stderr=slave,
                               env={**os.environ, **variables})
    os.close(slave)
    seen = b""
    while True:
        try:
            more = os.read(master, 65536)
        except OSError:  # nobody holds the other end any more
            break
        if not more:
            break
        seen += more
        if interrupt_after and seen.count(interrupt_after) >= 3:
            process.send_signal(signal.SIGINT)
            interrupt_after = None
    os.close(master)
    return process.wait(), seen.decode()


def shown_lines(seen):
    return [line.rstrip("\r") for part in seen.split("\n") for line in part.split("\r\x1b[K")]


class Terminal(unittest.TestCase):
    def test_the_line_of_progress_fits_and_is_gone_before_the_summary(self):
        with tempfile.TemporaryDirectory() as folder:
            code, seen = on_terminal(
                ["train", "--model", "vit_digits", "--depth", "1", "--batch", "8", "--steps", "1000000", "--threads",
                 "1", "--out", os.path.join(folder, "run")], interrupt_after=b"samples/s")
        self.assertEqual(code, 128 + signal.SIGINT, seen[-2000:])
        lines = shown_lines(seen)
        progress = [line for line in lines if " left  step " in line]
        self.assertGreaterEqual(len(progress), 3, seen[-2000:])
        for line in progress:
            self.assertRegex(line, r"^\d+:\d\d(:\d\d)? left  step \d+/1000000  loss ")
            self.assertLess(len(line), 80, line)
        stopped = [line for line in lines if "stopped and saved" in line]
        self.assertEqual(len(stopped), 1)
        self.assertTrue(stopped[0].startswith("stopped and saved"), stopped)

    def test_measuring_shows_its_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            code, seen = on_terminal(
                ["plan", "--model", "vit_cifar", "--depth", "2", "--batch", "2", "--budget", "1GiB", "--measure"],
                XDG_CACHE_HOME=folder)
        self.assertEqual(code, 0, seen[-2000:])
        steps = [re.fullmatch(r"measuring: step (\d+) of (\d+)", line) for line in shown_lines(seen)]
        steps = [(int(step[1]), int(step[2])) for step in steps if step]
        self.assertGreaterEqual(len(steps), 3, seen[-2000:])
        self.assertEqual([number for number, _ in steps], list(range(1, steps[0][1] + 1)))
        self.assertEqual({count for _, count in steps}, {steps[0][1]})
        self.assertTrue(any(line.startswith("vit_cifar, batch 2") for line in shown_lines(seen)), "it is gone then")


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
