"""Files that somebody made to do harm: they are refused with a sentence, in bounded time and memory."""

import os
import resource
import struct

import hostile_files as hostile
from attack import SMALL, SMALL_TEXT, Attack, cases, copy, main, run
from PIL import Image
from run_folder import checkpoints

IMAGES = [*SMALL, "--mode", "reprop", "--eval-every", "10", "--steps", "20"]
ONE_STEP = [*SMALL, "--mode", "reprop", "--steps", "1"]
TEXT = [*SMALL_TEXT, "--steps", "1"]
MOST_BYTES = 3 << 30  # that a program may have taken at its highest


def make_special(chance, path):
    """Something in place of a file that is no regular file, or not one of this folder. What it is."""
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.unlink()
    kind = chance.choice(("fifo", "zero", "null", "full", "tty", "loop", "dangling", "outside", "folder"))
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "outside":
        outside = path.parent.parent / "outside"
        outside.write_bytes(b'{"model": "vit_cifar"}')
        path.symlink_to(outside)
    else:
        path.symlink_to({"zero": "/dev/zero", "null": "/dev/null", "full": "/dev/full", "tty": "/dev/tty",
                         "loop": path, "dangling": path.parent / "none"}[kind])
    return kind


class Hostile(Attack):
    most = MOST_BYTES

    @classmethod
    def make(cls):
        cls.images, cls.text = cls.shared / "images", cls.shared / "text"
        for common, out in ((IMAGES, cls.images), ([*TEXT, "--data", "persuasion"], cls.text)):
            done = run(*common, "--out", out)
            assert done.code == 0, done
        cls.photos = cls.shared / "photos"
        for name in ("a", "b"):
            (cls.photos / name).mkdir(parents=True)
            for i in range(12):
                Image.new("RGB", (16, 16), (i * 20, 0, 200 * (name == "a"))).save(cls.photos / name / f"{i}.png")

    def tearDown(self):
        """The highest of all processes so far: said once."""
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        expected, Hostile.most = self.most, max(most, self.most)
        self.assertLessEqual(most, expected)

    def expect_nothing_left(self, done, out):
        self.assertFalse(done.code != 0 and out.exists(), f"a failed start leaves no folder\n{done}")

    @cases(6)
    def test_safetensors(self, chance, folder):
        path, out = folder / "w.safetensors", folder / "run"
        data, what = hostile.safetensors(chance, (self.images / "model.safetensors").read_bytes())
        path.write_bytes(data)
        with self.subTest(what):
            done = run(*ONE_STEP, "--weights", path, "--out", out, limit=20)
            self.expect_refused(done, path.name)
            self.expect_nothing_left(done, out)
            broken = copy(self.images, folder / "broken")
            (broken / "best.safetensors").write_bytes(data)
            self.expect_refused(run("eval", "--run", broken, limit=20), "best.safetensors")

    @cases(4)
    def test_images(self, chance, folder):
        """Left out with a count when trained on, an error when named or with --strict."""
        photos, out = copy(self.photos, folder / "photos"), folder / "run"
        data, what, name = hostile.image(chance)
        path = photos / "a" / name
        path.write_bytes(data)
        common = [*ONE_STEP, "--data", f"folder:{photos}", "--epochs", "1", "--steps", "0", "--batch", "4"]
        with self.subTest(what):
            done = run(*common, "--out", out, limit=30)
            self.expect_decent(done)
            if done.code == 0:
                self.assertIn("left out", done.err)
            strict = run(*common, "--strict", "--out", folder / "strict", limit=30)
            self.expect_refused(strict, name)
            self.expect_refused(run("predict", "--run", self.images, path, limit=20), name)

    @cases(4)
    def test_idx_and_cifar(self, chance, folder):
        files, what, scheme = hostile.image_arrays(chance)
        data, out = folder / "data", folder / "run"
        data.mkdir()
        for name, content in files.items():
            (data / name).write_bytes(content)
        with self.subTest(what):
            done = run(*ONE_STEP, "--data", f"{scheme}:{data}", "--out", out, limit=30)
            self.expect_refused(done, str(data))
            self.expect_nothing_left(done, out)

    @cases(4)
    def test_tokenizers(self, chance, folder):
        path, out = folder / "tokenizer.json", folder / "run"
        data, what = hostile.tokenizer(chance, (self.text / "tokenizer" / "tokenizer.json").read_bytes())
        path.write_bytes(data)
        with self.subTest(what):
            done = run(*TEXT, "--data", "persuasion", "--tokenizer", path, "--out", out, limit=30)
            self.expect_refused(done, path.name)
            self.expect_nothing_left(done, out)

    @cases(3)
    def test_texts(self, chance, folder):
        """NUL, broken UTF-8, one endless line: trained on, or refused with a reason."""
        path, out = folder / "text.txt", folder / "run"
        data, what = hostile.text(chance)
        path.write_bytes(data)
        with self.subTest(what):
            done = run(*TEXT, "--data", f"text:{path}", "--out", out, limit=60)
            self.expect_decent(done)
            if done.code != 0:
                self.expect_refused(done, "text")
                self.expect_nothing_left(done, out)
            else:
                self.expect_whole(out)
            asked = run("predict", "--run", self.text, data[:200].replace(b"\0", b"") + b" <mask>", limit=20)
            self.expect_decent(asked)

    @cases(6)
    def test_configurations(self, chance, folder):
        path, out = folder / "config.json", folder / "run"
        data, what = hostile.configuration(chance)
        path.write_bytes(data)
        with self.subTest(what):
            done = run("train", "--config", path, "--out", out, limit=20)
            self.expect_refused(done)
            self.assertRegex(done.err, f"{path.name}|--batch|model", done)
            self.expect_nothing_left(done, out)
            broken = copy(self.images, folder / "broken")
            (broken / "config.json").write_bytes(data)
            done = run("eval", "--run", broken, limit=20)
            self.expect_refused(done)
            self.assertRegex(done.err, "config.json|batch|model", done)

    @cases(3)
    def test_states(self, chance, folder):
        """state.json of the newest checkpoint: like any damage, the one before is used."""
        broken = copy(self.images, folder / "run")
        (broken / "model.safetensors").unlink()
        newest = checkpoints(broken)[-1]
        data, what = hostile.configuration(chance)
        (newest / "state.json").write_bytes(data)
        with self.subTest(what):
            done = run(*IMAGES, "--out", broken, "--resume", "auto", limit=30)
            self.expect_done(done)
            self.assertRegex(done.err, f"not used.*{newest.name}")
            self.assertEqual(self.weights(broken), self.weights(self.images))

    @cases(8)
    def test_special_files(self, chance, folder):
        """FIFOs, devices, links and folders in place of files: refused, never waited for, never read without end."""
        out, evaluated = folder / "run", False
        where = chance.choice(("config.json", "classes.json", "best.safetensors", "model.safetensors", "run.html",
                               "state.json", "weights.safetensors", "metrics.jsonl", ".lock", "--config", "--weights",
                               "image", "text", "tokenizer", "idx"))
        if where.startswith("--"):
            kind = make_special(chance, folder / "file")
            done = run(*ONE_STEP, where, folder / "file", "--out", out, limit=20)
        elif where == "image":
            kind = make_special(chance, folder / "cat.png")
            done = run("predict", "--run", self.images, folder / "cat.png", limit=20)
        elif where == "text":
            kind = make_special(chance, folder / "t.txt")
            done = run(*TEXT, "--data", f"text:{folder / 't.txt'}", "--out", out, limit=20)
        elif where == "tokenizer":
            kind = make_special(chance, folder / "tokenizer.json")
            done = run(*TEXT, "--data", "persuasion", "--tokenizer", folder / "tokenizer.json", "--out", out, limit=20)
        elif where == "idx":
            (folder / "idx").mkdir()
            kind = make_special(chance, folder / "idx" / "train-images-idx3-ubyte")
            done = run(*ONE_STEP, "--data", f"idx:{folder / 'idx'}", "--out", out, limit=20)
        else:
            broken = copy(self.images, folder / "run")
            (broken / "model.safetensors").unlink()
            holder = checkpoints(broken)[-1] if where in ("state.json", "weights.safetensors") else broken
            kind = make_special(chance, holder / where)
            evaluated = where in ("config.json", "classes.json", "best.safetensors") and chance.random() < 0.5
            done = run("eval", "--run", broken, limit=20) if evaluated else run(
                *IMAGES, "--out", broken, "--resume", "auto", limit=30)
        with self.subTest(f"{kind} as {where}"):
            self.expect_decent(done)
            if done.code != 0:
                self.expect_refused(done)
            elif where in ("state.json", "weights.safetensors"):
                self.assertIn("not used", done.err)
            elif where != ".lock":
                # To who only reads, a link to nothing is a file that is not there, and only some files must be.
                self.assertEqual((kind, where, evaluated), ("dangling", "best.safetensors", True), done)

    @cases(5)
    def test_names_with_escape_sequences(self, chance, folder):
        """No terminal obeys the name of a file, class, tensor, key or flag; no page runs it."""
        evil = "x" + chance.choice(("\x1b[2J", "\x1b]0;title\x07", "a\rb", "\x9b31m", "a\x08\x08", "\x7f", "\x1bc"))
        where = chance.choice(("class", "image", "tensor", "key", "flag", "command", "out", "data", "json", "value"))
        out = folder / "run"
        if where in ("class", "image"):
            photos = copy(self.photos, folder / "photos")
            if where == "class":
                (photos / "a").rename(photos / evil)
            else:
                (photos / "a" / f"{evil}.png").write_bytes(b"no image")
            done = run(*ONE_STEP, "--data", f"folder:{photos}", "--batch", "4", "--out", out)
            self.expect_decent(done)
            done = run("predict", "--run", out, photos / "b" / "1.png")
        elif where == "tensor":
            data = (self.images / "model.safetensors").read_bytes()
            (length,) = struct.unpack_from("<Q", data)
            header = data[8:8 + length].replace(b"head", evil.encode("unicode_escape").replace(b"\\x", b"\\u00")[:4])
            (folder / "w").write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length:])
            done = run(*ONE_STEP, "--weights", folder / "w", "--out", out)
        elif where == "key":
            (folder / "c.json").write_text('{"' + "".join(f"\\u{ord(c):04x}" for c in evil) + '": 1}')
            done = run("train", "--config", folder / "c.json", "--out", out)
        elif where == "json":
            (folder / "c.json").write_bytes(b'{"batch": ' + evil.encode() + b"}")
            done = run("train", "--config", folder / "c.json", "--out", out)
        elif where == "flag":
            done = run("train", f"--{evil}")
        elif where == "command":
            done = run(evil)
        elif where == "value":
            done = run("train", chance.choice(("--batch", "--model", "--mode", "--preset", "--depth")), evil)
        elif where == "data":
            done = run(*ONE_STEP, "--data", folder / evil, "--out", out)
        else:
            page = folder / f"{evil}<script>alert(1)<" / "run"
            done = run(*ONE_STEP, "--out", page)
            if done.code == 0:
                self.assertNotIn("<script>alert", (page / "run.html").read_text(errors="replace"))
        with self.subTest(f"{evil!r} as {where}"):
            self.expect_decent(done)


if __name__ == "__main__":
    main()
