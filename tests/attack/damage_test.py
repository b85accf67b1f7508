"""Damage to the files of a run: found and said, or harmless to the last bit; never a crash."""

import json
import shutil

from attack import SMALL, SMALL_TEXT, Attack, Started, cases, copy, main, run
from run_folder import checkpoints, faults

IMAGES = [*SMALL, "--mode", "reprop", "--eval-every", "10", "--steps", "40"]
TEXT = [*SMALL_TEXT, "--data", "persuasion", "--eval-every", "10", "--steps", "40"]
COMMON = {"images": IMAGES, "text": TEXT}


def flip(chance, path):
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def flip_in_header(chance, path):
    """Among the first bytes, where most of what is not numbers is."""
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(min(len(data), 300))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def truncate(chance, path):
    data = path.read_bytes()
    path.write_bytes(data[:chance.choice((0, 1, 8, len(data) - 1, chance.randrange(len(data) + 1)))])


def extend(chance, path):
    path.write_bytes(path.read_bytes() + chance.randbytes(chance.choice((1, 8, 1000))))


def zero(chance, path):
    data = path.read_bytes()
    begin = chance.randrange(len(data) + 1)
    length = min(chance.choice((1, 64, 4096)), len(data) - begin)
    path.write_bytes(data[:begin] + bytes(length) + data[begin + length:])


def scramble(chance, path):
    path.write_bytes(chance.randbytes(len(path.read_bytes())))


def remove(_, path):
    path.unlink()


def make_folder(_, path):
    path.unlink()
    path.mkdir()


def swap(chance, path):
    """With another file of the run, of the same kind if there is one."""
    run_folder = next(parent for parent in path.parents if (parent / "metrics.jsonl").exists())
    others = [other for other in run_folder.rglob("*")
              if other.is_file() and other != path and other.stat().st_size > 0]
    alike = [other for other in others if other.suffix == path.suffix]
    other = chance.choice(sorted(alike or others))
    mine = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(mine)


DAMAGE = (flip, flip, flip, flip_in_header, truncate, extend, zero, scramble, remove, make_folder, swap)


def is_evaluated(name):
    """Whether `eval` reads a file of that name in a run that is finished."""
    return name.parts[0] not in (".lock", "checkpoints", "tensorboard", "metrics.jsonl", "run.html")


class Damage(Attack):
    @classmethod
    def make(cls):
        cls.whole, cls.part, cls.answers = {}, {}, {}
        for kind, common in COMMON.items():
            cls.whole[kind], cls.part[kind] = cls.shared / f"whole-{kind}", cls.shared / f"part-{kind}"
            done = run(*common, "--out", cls.whole[kind])
            assert done.code == 0, done
            process = Started(*common, "--out", cls.part[kind])
            process.wait_until(lambda part=cls.part[kind]: len(checkpoints(part)) >= 2)
            process.kill()
            cls.answers[kind] = cls.ask(cls.whole[kind])[0]

    @staticmethod
    def ask(folder):
        """What `eval` finds with the best and with the last weights, but the folder's name; none where it fails."""
        done = [run("eval", "--run", folder, "--threads", "1", "--json", "-", *last) for last in ([], ["--last"])]
        return [{**json.loads(each.out), "run": ""} if each.code == 0 else None for each in done], done

    def damaged_copy(self, chance, folder, original, wanted=lambda name: True):
        out = copy(original, folder / "run")
        files = sorted(path for path in out.rglob("*") if path.is_file() and wanted(path.relative_to(out)))
        names = sorted({path.name for path in files})
        name, damage = chance.choice(names), chance.choice(DAMAGE)
        target = chance.choice([path for path in files if path.name == name])
        what = f"{damage.__name__} of {target.relative_to(out)}"
        damage(chance, target)
        return out, target, what

    @cases(12)
    def test_resumed(self, chance, folder):
        """A run that was killed, with damage: it ends with the same weights, or is refused and left as it is."""
        kind = chance.choice(("images", "images", "text"))
        out, target, what = self.damaged_copy(chance, folder, self.part[kind])
        newest = checkpoints(self.part[kind])[-1].name
        done = run(*COMMON[kind], "--out", out, "--resume", "auto")
        with self.subTest(what):
            self.expect_decent(done)
            if done.code != 0:
                self.expect_refused(done)
                return
            self.assertEqual(self.weights(out), self.weights(self.whole[kind]), done)
            self.assertEqual(faults(out), [])
            if target.parent.name == newest and not (out / "checkpoints" / newest / "state.json").exists():
                self.assertIn("not used", done.err)

    @cases(8)
    def test_evaluated(self, chance, folder):
        """A finished run, with damage: the same answer, or none."""
        kind = chance.choice(("images", "images", "text"))
        out, _, what = self.damaged_copy(chance, folder, self.whole[kind], is_evaluated)
        for answer, done, expected in zip(*self.ask(out), self.answers[kind]):
            with self.subTest(what):
                self.expect_decent(done)
                if answer is None:
                    self.expect_refused(done)
                elif answer["weights"] == expected["weights"]:  # others are used only where it is said
                    self.assertEqual(answer, expected, done.err)

    @cases(3)
    def test_all_checkpoints(self, chance, folder):
        """None is whole: nothing is overwritten, and it is said."""
        out = copy(self.part["images"], folder / "run")
        for path in checkpoints(out):
            flip(chance, chance.choice(sorted(path.iterdir())))
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        done = run(*IMAGES, "--out", out, "--resume", "auto")
        self.expect_refused(done, "checkpoint")
        self.assertEqual({path: path.read_bytes() for path in before}, before)

    @cases(2)
    def test_checkpoints_of_others(self, chance, folder):
        """A checkpoint under the name of another step, or of another run."""
        out = copy(self.part["images"], folder / "run")
        first, newest = checkpoints(out)[0], checkpoints(out)[-1]
        if chance.random() < 0.5:
            shutil.rmtree(newest)
            shutil.copytree(first, newest)
            done = run(*IMAGES, "--out", out, "--resume", "auto")
            self.expect_done(done)
            self.assertIn("not used", done.err)
            self.assertEqual(self.weights(out), self.weights(self.whole["images"]))
        else:
            shutil.rmtree(newest)
            shutil.copytree(checkpoints(self.part["text"])[-1], newest)
            done = run(*IMAGES, "--out", out, "--resume", "auto")
            self.expect_refused(done)


if __name__ == "__main__":
    main()
