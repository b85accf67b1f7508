"""Signals at random moments of every phase: the program ends in time or goes on, and what it wrote is whole."""

import os
import signal
import time

from attack import SLOW_EVALUATION, SMALL, SMALL_TEXT, Attack, cases, main, run
from run_folder import checkpoints, lines_of

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
IN_TIME = 10  # seconds; a second or a step, on a machine that does much else
STEPS = 60
COMMON = [*SMALL, "--mode", "reprop", "--eval-every", "15", "--steps", STEPS]


class Signals(Attack):
    @classmethod
    def make(cls):
        cls.whole, cls.whole_of_two = cls.shared / "whole", cls.shared / "whole-of-two"
        for nproc, out in ((1, cls.whole), (2, cls.whole_of_two)):
            done = run(*COMMON, "--nproc", nproc, "--out", out)
            assert done.code == 0, done
        cls.text = cls.shared / "text.txt"
        cls.text.write_text("".join(f"word{i * i % 99991} and {i} more of it.\n" for i in range(300000)))

    def expect_stopped(self, chance, process, number):
        """Sends the signal, sometimes twice within a moment, and expects the end in time."""
        for _ in range(chance.choice((1, 1, 2))):
            process.send(number)
        done = process.end(IN_TIME)
        self.expect_decent(done, sent=number)
        return done

    def expect_resumed(self, common, folder):
        done = run(*common, "--out", folder, "--resume", "auto")
        self.expect_done(done)
        self.expect_whole(folder)

    @cases(4)
    def test_while_it_starts(self, chance, folder):
        """Libraries, data, planning: nothing is there yet, so nothing may be left but a whole folder."""
        out, number = folder / "run", chance.choice(STOPPING)
        process = self.start(*COMMON, "--out", out)
        time.sleep(chance.uniform(0, 0.7))
        done = self.expect_stopped(chance, process, number)
        self.assertIn(done.code, (0, -number, 128 + number), done)
        if done.code != 0 and not lines_of(out):
            self.assertFalse(checkpoints(out))
        if out.exists():
            self.expect_whole(out)
        self.expect_resumed(COMMON, out)
        self.assertEqual(self.weights(out), self.weights(self.whole))

    @cases(2)
    def test_while_it_prepares_data(self, chance, folder):
        out, number = folder / "run", chance.choice(STOPPING)
        process = self.start(*SMALL_TEXT, "--data", f"text:{self.text}", "--out", out)
        time.sleep(chance.uniform(0.6, 1.2))
        done = self.expect_stopped(chance, process, number)
        self.assertIn(done.code, (-number, 128 + number), done)
        self.assertFalse(out.exists(), "it did not train yet")

    @cases(3)
    def test_while_it_trains(self, chance, folder):
        out, number = folder / "run", chance.choice(STOPPING)
        process = self.start(*COMMON, "--out", out)
        wanted = chance.randrange(1, STEPS)
        process.wait_until(lambda: len(lines_of(out)) >= wanted)
        done = self.expect_stopped(chance, process, number)
        self.assertIn(done.code, (0, 128 + number), done)
        if done.code != 0:
            self.assertIn("--resume auto", done.out)
            self.assertEqual(int(checkpoints(out)[-1].name[5:]), lines_of(out)[-1]["step"], "the last step was saved")
        self.expect_whole(out)
        self.expect_resumed(COMMON, out)
        self.assertEqual(self.weights(out), self.weights(self.whole))

    @cases(1)
    def test_while_it_evaluates(self, chance, folder):
        out, number = folder / "run", chance.choice(STOPPING)
        process = self.start(*SLOW_EVALUATION, "--out", out)
        process.wait_until(lambda: len(lines_of(out)) >= 4)
        time.sleep(chance.uniform(0, 0.4))
        done = self.expect_stopped(chance, process, number)
        self.assertEqual(done.code, 128 + number, done)
        self.assertEqual([path.name for path in checkpoints(out)], ["step-00000004"])
        self.expect_whole(out)

    @cases(2)
    def test_while_it_saves(self, chance, folder):
        out, number = folder / "run", chance.choice(STOPPING)
        process = self.start(*COMMON, "--save-every", 1, "--keep", 1, "--steps", 100000, "--out", out)
        process.wait_until(lambda: any((out / "checkpoints").glob("*.partial")))
        time.sleep(chance.uniform(0, 0.02))
        done = self.expect_stopped(chance, process, number)
        self.assertEqual(done.code, 128 + number, done)
        self.assertEqual(int(checkpoints(out)[-1].name[5:]), lines_of(out)[-1]["step"])
        self.expect_whole(out)

    def expect_two_stopped(self, chance, process, number, whom=("launcher", "all", "rank")):
        """Signals the launcher, everybody as a terminal does, or one of the ranks."""
        whom = chance.choice(whom)
        children = process.children() if process.process.poll() is None else []
        try:
            if whom == "launcher" or not children:
                process.send(number)
            elif whom == "all":
                os.killpg(process.process.pid, number)
            else:
                os.kill(chance.choice(children), number)
        except ProcessLookupError:
            pass  # it has just ended
        done = process.end(2 * IN_TIME)
        self.expect_decent(done, sent=number)
        return done

    @cases(2)
    def test_two_processes(self, chance, folder):
        """Also resumed, to the same bits."""
        out, number = folder / "run", chance.choice(STOPPING)
        process = self.start(*COMMON, "--nproc", 2, "--out", out)
        wanted = chance.randrange(1, STEPS)
        process.wait_until(lambda: len(lines_of(out)) >= wanted)
        done = self.expect_two_stopped(chance, process, number)
        self.assertIn(done.code, (0, 128 + number), done)
        self.expect_whole(out)
        self.assertEqual(int(checkpoints(out)[-1].name[5:]), lines_of(out)[-1]["step"])
        self.expect_resumed([*COMMON, "--nproc", 2], out)
        self.assertEqual(self.weights(out), self.weights(self.whole_of_two))

    @cases(2)
    def test_two_processes_while_they_evaluate(self, chance, folder):
        """One is asked, and all give up the evaluation, which would take longer than the time-out."""
        out, number = folder / "run", chance.choice(STOPPING)
        process = self.start(*SLOW_EVALUATION, "--image-size", 160, "--nproc", 2, "--timeout", 10, "--out", out)
        process.wait_until(lambda: len(lines_of(out)) >= 4)
        time.sleep(chance.uniform(0, 0.4))
        done = self.expect_two_stopped(chance, process, number, whom=("rank",))
        self.assertEqual(done.code, 128 + number, done)
        self.assertNotRegex(done.err, "did not (join|respond)")
        self.assertEqual([path.name for path in checkpoints(out)], ["step-00000004"])
        self.assertNotIn("eval_loss", (out / "metrics.jsonl").read_text())
        self.expect_whole(out)

    @cases(2)
    def test_signals_that_do_not_end_it(self, chance, folder):
        """SIGPIPE, and SIGSTOP for a while: the same bits as without."""
        out = folder / "run"
        nproc = chance.choice((1, 2))
        common = [*COMMON, "--nproc", nproc, "--steps", STEPS]
        process = self.start(*common, "--out", out)
        process.wait_until(lambda: len(lines_of(out)) >= 1)
        for _ in range(5):
            if process.process.poll() is not None:
                break
            number = chance.choice((signal.SIGPIPE, signal.SIGSTOP))
            whom = chance.choice([process.process.pid, *process.children()])
            try:
                os.kill(whom, number)
                time.sleep(chance.uniform(0, 0.3))
                os.kill(whom, signal.SIGCONT)
            except ProcessLookupError:
                break
        self.expect_done(process.end())
        self.expect_whole(out)
        if nproc == 1:
            self.assertEqual(self.weights(out), self.weights(self.whole))


if __name__ == "__main__":
    main()
