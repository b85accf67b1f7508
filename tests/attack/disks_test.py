"""Disks that are full, read-only or taken away: an error that says so, and earlier checkpoints stay whole."""

import os
import resource
import shutil
import subprocess
import time

from attack import SLOW_EVALUATION, SMALL, Attack, Started, cases, copy, main, run
from run_folder import checkpoints, lines_of

STEPS = 40
COMMON = [*SMALL, "--mode", "reprop", "--eval-every", "10", "--steps", STEPS]
NO_EVALUATION = [*SMALL, "--mode", "reprop", "--eval-every", "1000000", "--steps", "1000000"]

# A file system of its own, which the program alone sees: $1 its size, $2 where, $3 what it holds first, $4 where its
# content is copied to afterwards. With an empty size it is $2 itself, read-only.
DISK = """
if [ -n "$1" ]; then mount -t tmpfs -o "size=$1" none "$2" && cp -a "$3/." "$2" || exit 99
else mount --bind "$2" "$2" && mount -o remount,bind,ro "$2" || exit 99; fi
disk=$2 after=$4; shift 4
"$@"; code=$?
[ -z "$after" ] || cp -a "$disk/." "$after"
exit $code
"""


def unshare():
    """How one gets mounts of one's own here; none where one cannot."""
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        try:
            if subprocess.run([*command, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0:
                return command
        except FileNotFoundError:
            pass
    return None


UNSHARE = unshare()


def on_disk(size, disk, before="", after=""):
    return [*UNSHARE, "sh", "-c", DISK, "sh", str(size), disk, before, after]


class Disks(Attack):
    @classmethod
    def make(cls):
        cls.whole, cls.part = cls.shared / "whole", cls.shared / "part"
        done = run(*COMMON, "--out", cls.whole)
        assert done.code == 0, done
        process = Started(*COMMON, "--out", cls.part)
        process.wait_until(lambda: len(checkpoints(cls.part)) >= 2)
        process.kill()
        (cls.shared / "empty").mkdir()

    def expect_goes_on(self, run_folder, earlier):
        """What is there is whole, the earlier checkpoints among it, and with room it ends with the same bits."""
        if run_folder.exists():
            self.expect_whole(run_folder)
        for path in earlier:
            self.assertTrue((run_folder / "checkpoints" / path.name).exists() or
                            checkpoints(run_folder)[-1].name > path.name, path)
        self.expect_done(run(*COMMON, "--out", run_folder, "--resume", "auto"))
        self.expect_whole(run_folder)
        self.assertEqual(self.weights(run_folder), self.weights(self.whole))

    @cases(3)
    def test_full_disk(self, chance, folder):
        if UNSHARE is None:
            self.skipTest("no mounts of one's own here")
        begun = chance.random() < 0.6
        before = self.part if begun else self.shared / "empty"
        disk, after = folder / "disk", folder / "after"
        disk.mkdir()
        after.mkdir()
        (folder / "before").mkdir()
        if begun:
            copy(before, folder / "before" / "run")
        used = sum(path.stat().st_size // 4096 * 4096 + 4096 for path in before.rglob("*"))
        size = used + chance.randrange(4096, 300000)
        done = run(*COMMON, "--out", disk / "run", *(["--resume", "auto"] if begun else []),
                   before=on_disk(size, disk, folder / "before", after))
        self.assertNotEqual(done.code, 99, done)
        if done.code != 0:
            self.expect_refused(done, "No space left", codes=(1,))
        self.expect_goes_on(after / "run", checkpoints(before) if begun else [])

    @cases(3)
    def test_file_size_limit(self, chance, folder):
        """What `ulimit -f` does: EFBIG instead of SIGXFSZ's death."""
        begun = chance.random() < 0.6
        out = folder / "run"
        if begun:
            copy(self.part, out)
        limit = int(10 ** chance.uniform(3.5, 5.3))  # more than it says, which goes to a file too
        done = run(*COMMON, "--out", out, *(["--resume", "auto"] if begun else []),
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        if done.code != 0:
            self.expect_refused(done, codes=(1,))
        self.expect_goes_on(out, checkpoints(self.part) if begun else [])

    @cases(2)
    def test_read_only(self, chance, folder):
        if UNSHARE is None:
            self.skipTest("no mounts of one's own here")
        out = copy(self.part, folder / "run")
        command = chance.choice((
            [*COMMON, "--out", out, "--resume", "auto"], [*COMMON, "--out", out / "new"],
            ["trace", "--model", "vit_cifar", "--depth", "1", "--batch", "1", "--out", out / "trace.json"],
            ["models", "--json", out / "models.json"]))
        before = sorted(path.name for path in out.rglob("*"))
        self.expect_refused(run(*command, before=on_disk("", out)), str(out))
        self.assertEqual(sorted(path.name for path in out.rglob("*")), before)

    @cases(3)
    def test_dev_full(self, chance, folder):
        """A device that takes nothing, for what is written on request and for standard output."""
        evaluated = ["eval", "--run", self.whole, "--threads", "1"]
        traced = ["trace", "--model", "vit_cifar", "--width", "16", "--depth", "1", "--batch", "1", "--steps", "1"]
        command, to_stdout = chance.choice((
            ([*evaluated, "--json", "/dev/full"], False), ([*evaluated, "--json", "-"], True), (evaluated, True),
            ([*traced, "--out", "/dev/full"], False), ([*traced, "--svg", "/dev/full", "--out", folder / "t"], False),
            (["models", "--json", "/dev/full"], False), (["--help"], True), (["--version"], True),
            ([*COMMON, "--out", folder / "run"], True), ([*COMMON, "--dry-run"], True)))
        with open("/dev/full", "wb") as full:
            done = run(*command, **({"stdout": full} if to_stdout else {}))
        self.expect_refused(done, codes=(1,))
        self.assertTrue(os.path.exists("/dev/full"))

    @cases(2)
    def test_the_folder_is_taken_away(self, chance, folder):
        out, aside = folder / "run", folder / "aside"
        evaluating = chance.random() < 0.5
        process = self.start(*(SLOW_EVALUATION if evaluating else NO_EVALUATION), "--out", out)
        wanted = 4 if evaluating else chance.randrange(1, 30)
        process.wait_until(lambda: len(lines_of(out)) >= wanted)
        time.sleep(chance.uniform(0, 0.1))
        how = chance.choice(("removed", "renamed", "replaced", "linked"))
        if how == "removed":
            while out.exists():
                shutil.rmtree(out, ignore_errors=True)
        else:
            out.rename(aside)
        if how == "replaced":
            out.mkdir()
        elif how == "linked":
            (folder / "elsewhere").mkdir()
            out.symlink_to(folder / "elsewhere")
        self.expect_refused(process.end(20), str(out), codes=(1,))
        if how != "removed":
            self.expect_whole(aside)
        if how == "replaced":
            self.assertEqual(list(out.iterdir()), [], "a folder of somebody else's is left alone")
        if how == "linked":
            self.assertEqual(list((folder / "elsewhere").iterdir()), [])


if __name__ == "__main__":
    main()
