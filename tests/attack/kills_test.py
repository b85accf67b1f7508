"""`kill -9` at random moments of runs with default checkpoints: they go on, to the same bits."""

import random
import re
import signal
import time

from attack import SEED, SMALL, Attack, cases, main, run
from run_folder import checkpoints, faults, lines_of

EVERY = 10  # steps between evaluations, each of which saves
KILLS = 3
KILLS_OF_DEFAULT = 10
COMMON = [*SMALL, "--mode", "pareprop", "--dropout", "0.1", "--eval-every", EVERY, "--steps", EVERY * (2 + 2 * KILLS)]


def losses(folder):
    return [(line["step"], line.get("loss"), line.get("eval_loss")) for line in lines_of(folder)]


class Kills(Attack):
    @classmethod
    def make(cls):
        cls.whole = {}
        for nproc in (1, 2):
            cls.whole[nproc] = cls.shared / f"whole-{nproc}"
            done = run(*COMMON, "--nproc", nproc, "--out", cls.whole[nproc])
            assert done.code == 0, done

    def kill_at_a_moment(self, chance, folder, process):
        moment = chance.choice(("start", "step", "step", "checkpoint"))
        before, saved = len(lines_of(folder)), checkpoints(folder)
        if moment == "step":
            wanted = before + chance.randrange(1, 2 * EVERY)
            process.wait_until(lambda: len(lines_of(folder)) >= wanted)
        elif moment == "checkpoint":
            process.wait_until(lambda: any((folder / "checkpoints").glob("*.partial")) or checkpoints(folder) != saved)
        time.sleep(chance.uniform(0, 0.6 if moment == "start" else 0.03))
        process.kill()

    def expect_whole_but_logs(self, folder):
        """A kill may leave half a line of what is appended to, and half-written files under other names."""
        found = [fault for fault in faults(folder, leftovers=True)
                 if not fault.startswith(("metrics.jsonl", "tensorboard"))]
        self.assertEqual(found, [])

    def expect_saved_at_every_evaluation(self, folder):
        evaluated = [line["step"] for line in lines_of(folder) if "eval_loss" in line]
        if len(evaluated) > 1:  # the last one may have been killed before its checkpoint
            self.assertGreaterEqual(int(checkpoints(folder)[-1].name[5:]), evaluated[-2])

    def attack(self, chance, folder, nproc):
        part, whole = folder / "run", self.whole[nproc]
        common = [*COMMON, "--nproc", nproc, "--out", part, "--resume", "auto"]
        for _ in range(KILLS):
            self.kill_at_a_moment(chance, part, self.start(*common))
            self.expect_whole_but_logs(part)
            self.expect_saved_at_every_evaluation(part)
        saved, finished = checkpoints(part), (part / "model.safetensors").exists()
        done = run(*common)
        self.expect_done(done)
        if saved and not finished:
            self.assertIn(saved[-1].name, done.err)
        self.expect_whole(part)
        self.assertEqual(losses(part), losses(whole))
        self.assertEqual(self.weights(part), self.weights(whole))

    def test_ten_kills_of_a_run_with_default_flags(self):
        """Neither --eval-every nor --save-every: it goes on from the last evaluation, which is an epoch ago at most."""
        chance = random.Random(f"{SEED}/default flags")
        part, whole = self.shared / "default", self.shared / "default-whole"
        common = [*SMALL, "--mode", "reprop", "--batch", 64, "--epochs", 30]
        begun = time.monotonic()
        self.expect_done(run(*common, "--out", whole, limit=120))
        seconds = time.monotonic() - begun  # of all epochs
        went_on = set()
        for kill in range(KILLS_OF_DEFAULT + 1):
            saved = checkpoints(part)
            evaluated = [line["step"] for line in lines_of(part) if "eval_loss" in line]
            last = int(saved[-1].name[5:]) if saved else 0
            # A kill may come between an evaluation and its checkpoint.
            self.assertIn(last, [0, *evaluated][-2:], f"kill {kill}")
            process = self.start(*common, "--out", part, "--resume", "auto")
            if kill < KILLS_OF_DEFAULT:
                time.sleep(chance.uniform(0, seconds / 4))
                process.process.kill()
            done = process.end(120)
            if begins := re.search(r"training from step (\d+)", done.err):
                self.assertEqual(int(begins[1]), last, done)
                went_on.add(last)
            self.expect_whole_but_logs(part)
        self.expect_done(done)
        self.assertGreater(len(went_on), 2, "it went on from several evaluations")
        self.assertEqual(losses(part), losses(whole))
        self.assertEqual(self.weights(part), self.weights(whole))

    @cases(2)
    def test_one_process(self, chance, folder):
        self.attack(chance, folder, 1)

    @cases(1)
    def test_two_processes(self, chance, folder):
        self.attack(chance, folder, 2)

    @cases(1)
    def test_the_launcher_alone(self, chance, folder):
        """Its workers end by themselves, so that the folder is free for the next attempt."""
        part = folder / "run"
        common = [*SMALL, "--mode", "reprop", "--eval-every", EVERY, "--nproc", 2, "--out", part]
        process = self.start(*common, "--steps", 100000)
        process.wait_until(lambda: checkpoints(part))
        time.sleep(chance.uniform(0, 0.2))
        process.send(signal.SIGKILL)
        process.process.wait()
        steps = int(checkpoints(part)[-1].name[5:]) + 500
        deadline = time.monotonic() + 40
        while True:
            done = run(*common, "--steps", steps, "--resume", "auto", limit=90)
            if "another process trains" not in done.err or time.monotonic() > deadline:
                break
        self.expect_done(done)
        self.expect_whole(part)


if __name__ == "__main__":
    main()
