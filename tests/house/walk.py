"""A stranger's walk: runs every command of the documents, as someone with a fresh clone would.

    walk.py ROOT PROGRAM BUILD    in `make test`: the program's commands, shortened; the others are looked up only
    walk.py --all ROOT            by hand, hours: also builds, installs and runs all tests

The program's commands run in one temporary folder, from the first of README.md on, and each must exit with 0.
Commands are the lines of indented blocks and of fences named sh, bash or console; where a block has lines that begin
with "$ ", these alone. A command that no rule below covers fails, and so does a rule that no command needs.
"""
import gzip
import itertools
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import time

try:
    from PIL import Image
except ImportError:  # in a fresh clone `make build` brings it
    Image = None

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/*.md", "bench/peers/README.md"]

# What makes a command quick: a value for a flag, in the place of its own or at the end; None for one without. All rules that match the
# command apply in this order.
SHORTER = [
    (r" train (?!.*--preset list)", {"--steps": "2", "--batch": "2"}),
    (r" train .*--resume auto", {"--steps": "3"}),  # a step more than the run has, so that there is something to do
    (r" train .*--trace", {"--trace": "2"}),
    (r" train .*vit_small", {"--depth": "1", "--width": "48", "--image-size": "32"}),
    (r" train .*text:books/", {"--depth": "1", "--width": "48", "--vocabulary": "300"}),
    (r" train --preset fashion", {"--data": "fashion-mnist:few", "--depth": "1"}),
    (r" bench ", {"--batch": "1,2", "--rounds": "1", "--steps": "1"}),
    (r" trace ", {"--image-size": "64", "--steps": "1"}),
    (r"pareprop doctor", {"--quick": None}),
    (r"^torchrun ", {"--nnodes": "1", "--rdzv-endpoint": "localhost:0", "--depth": "1", "--image-size": "32"}),
]

# Commands of the program, which are run. The others are in ELSEWHERE.
PROGRAM = r"(torchrun .* )?(build/)?pareprop (?!.* folder:TWO )"


class Wrong(Exception):
    pass


def run(words, cwd, **changes):
    """What the command printed, which may begin with variables as in a shell; Wrong unless it exits with 0."""
    own = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    variables = list(itertools.takewhile(lambda word: re.match(r"[A-Z_]+=", word), words))
    own.update(word.split("=", 1) for word in variables)
    done = subprocess.run(words[len(variables):], cwd=cwd, env={**own, **changes}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise Wrong(f"exit code {done.returncode} of {shlex.join(words)}\n{tail}")
    return done.stdout


def target_exists(words, root, build):
    run(["make", "-n", *words[1:]], root)


def peers_take_arguments(words, root, build):
    target_exists(words, root, build)
    arguments = [word.split("=", 1)[1] for word in words if "=" in word]
    frontier = ["--frontier"] if "bench-frontier" in words else []
    for line in arguments:
        run([sys.executable, "bench/peers/run.py", *frontier, *shlex.split(line), "--list"], root)


def selects_tests(words, root, build):
    # From a folder of its own: even with -N, ctest begins a new log there, which would be that of the tests that run now.
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "CTestTestfile.cmake").write_text(f'subdirs("{build}")\n')
        listed = run(["ctest", "--test-dir", folder, "-N", *words[words.index("build") + 1:]], root)
    if re.search(r"^Total Tests: 0$", listed, re.M):
        raise Wrong("selects no test")


def filter_selects_cases(words, root, build):
    listed = run([str(build / words[0].removeprefix("build/")), "--gtest_list_tests", *words[1:]], root)
    if not re.search(r"^  \w", listed, re.M):
        raise Wrong("selects no case")


def file_exists(words, root, build):
    if not os.access(root / words[0], os.X_OK):
        raise Wrong(f"{words[0]} is no program")


def folder_exists(words, root, build):
    if "-S" in words and not (root / words[words.index("-S") + 1] / "CMakeLists.txt").is_file():
        raise Wrong("the folder after -S has no CMakeLists.txt")


def project_exists(words, root, build):
    if not (root / "pyproject.toml").is_file():
        raise Wrong("there is no pyproject.toml")


def script_exists(words, root, build):
    if not (root / words[-1]).is_file():
        raise Wrong(f"{words[-1]} is no file")


def flags_exist(words, root, build):
    known = subprocess.run([build / "pareprop", words[1], "--help"], capture_output=True, text=True, check=True).stdout
    for word in words:
        if word.startswith("--") and not re.search(re.escape(word) + r"\b", known):
            raise Wrong(f"pareprop {words[1]} has no {word}")


ALL = "--all runs it"  # the only reason with which a command is run under --all

# What is not run in a test: why, and what is looked up instead.
ELSEWHERE = [
    (r"make (build|demo|test)$", ALL, target_exists),
    (r"(PAREPROP_\w+=\d+ )?ctest --test-dir build ", ALL, selects_tests),
    (r"cmake (--install build|-S \S+ -B|--build) ", ALL, folder_exists),  # as the tests of packaging/ do
    (r"build/tests/\w+/\w+_tests ", ALL, filter_selects_cases),
    (r"make python$", "is pip install, for minutes", target_exists),
    (r"pip (install|wheel) ", "changes the Python that it is for, or compiles for minutes", project_exists),
    (r"(python|torchrun --nproc-per-node=2) examples/python/", "python.examples runs it", script_exists),
    (r"make format$", "changes the sources", target_exists),
    (r"make (asan|tsan|tidy|cuda-check)$", "builds or reads the project again, for an hour", target_exists),
    (r"\.ci/run$", "is make test, more random cases, tsan and asan-quick", file_exists),
    (r"make (bench-peers|bench-frontier)( (PEERS|FRONTIER)=.*)?$", "takes hours", peers_take_arguments),
    (r"make (bench-growth|report)$", "takes half an hour of an idle machine", target_exists),
    (r"make report-png$", "needs a browser, and what make report writes", target_exists),
    (r"pareprop train --model \w+ --data folder:TWO ", "takes 11 to 17 GiB of memory", flags_exist),
    (r"tools/convert_pickle.py ", "needs a pickle; train.weights makes one", file_exists),
    (r"tools/convert_slowfast.py ", "needs a checkpoint of SlowFast; models.convert_slowfast makes one", file_exists),
]


def commands(text):
    """Yields (line, command) with continued lines joined."""
    blocks, fence, inside = [], None, False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fence = None if fence is not None else line[3:].strip()
            inside = False
        elif fence in ("sh", "bash", "console") or (fence is None and line.startswith("    ")):
            if not inside:
                blocks.append([])
            inside = True
            blocks[-1].append((number, line.strip()))
        elif line.strip():
            inside = False
    for block in blocks:
        prompts = any(line.startswith("$ ") for _, line in block)
        joined = []
        for number, line in block:
            if joined and joined[-1][1].endswith("\\"):
                joined[-1] = (joined[-1][0], joined[-1][1][:-1] + line)
            elif line.startswith("$ ") or not prompts:
                joined.append((number, line.removeprefix("$ ")))
        yield from ((number, line) for number, line in joined if line and not line.startswith("#"))


def furnish(folder, program):
    """What the documents take for granted: the program, photos, books, and a few images like Fashion-MNIST's."""
    (folder / "build").mkdir()
    (folder / "build/pareprop").symlink_to(program)
    numbered = [f"{animal}s/{number}.png" for animal in ("cat", "dog") for number in range(12)]
    for name in [*numbered, "cat.jpg", "dog.png"]:
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((40, 32), 60).convert("RGB").save(path)
    (folder / "books").mkdir()
    (folder / "books/tale.txt").write_text("".join(
        f"On day {day} Anne walked {day * 7 % 13} miles, and was glad to see the sea.\n" for day in range(2000)))
    (folder / "few").mkdir()
    for part, images in (("train", 64), ("t10k", 16)):
        for kind, shape in (("images-idx3", (images, 28, 28)), ("labels-idx1", (images,))):
            count = images * 28 * 28 if len(shape) == 3 else images
            header = struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape)
            with gzip.open(folder / f"few/{part}-{kind}-ubyte.gz", "wb") as file:
                file.write(header + bytes(i % 10 for i in range(count)))


class Walk:
    def __init__(self, root, program, build, folder, run_all):
        self.root, self.program, self.build, self.folder, self.run_all = root, program, build, folder, run_all
        self.used, self.failures = set(), []

    def shortened(self, command, words):
        for pattern, flags in SHORTER:
            if not re.search(pattern, command):
                continue
            self.used.add(pattern)
            for flag, value in flags.items():
                if value is None:
                    words += [flag]
                elif flag in words:
                    words[words.index(flag) + 1] = value
                else:
                    words += [flag, value]
        return words

    def run_program(self, place, command, words):
        """RUN is a new folder where a run begins, else that of the last run of the document."""
        if not (self.folder / "build").exists():
            furnish(self.folder, self.program)
        if " train " in command and "--out" in words and "--resume" not in words:
            out = words[words.index("--out") + 1]
            self.last_run = "runs/" + re.sub(r"\W", "-", place) if out == "RUN" else out
        words = [self.last_run if word == "RUN" else word.replace("/shared/", "shared/") for word in words]
        path = os.pathsep.join([str(self.folder / "build"), os.path.dirname(sys.executable), os.environ["PATH"]])
        run(self.shortened(command, words), self.folder, PATH=path, XDG_CACHE_HOME=str(self.folder / "cache"))

    def step(self, place, command):
        words = shlex.split(command, comments=True)
        if re.match(PROGRAM, command):
            return self.run_program(place, command, words)
        rule = next((rule for rule in ELSEWHERE if re.match(rule[0], command)), None)
        if not rule:
            raise Wrong("no rule of tests/house/walk.py covers this command")
        pattern, reason, check = rule
        self.used.add(pattern)
        check(words, self.root, self.build)
        if self.run_all and reason == ALL:
            run([re.sub(r"\bPREFIX\b", str(self.folder / "prefix"), word) for word in words], self.root)
        else:
            print(f"    not run: {reason}")

    def document(self, path):
        self.last_run = "RUN"
        for number, command in commands(path.read_text(encoding="utf-8")):
            place = f"{path.relative_to(self.root)}:{number}"
            print(f"{place}: {command}", flush=True)
            begin = time.monotonic()
            try:
                self.step(place, command)
            except (Wrong, OSError, ValueError) as error:
                self.failures.append(f"{place}: {command}\n{error}")
            print(f"    {time.monotonic() - begin:.1f} s", flush=True)


def main():
    run_all = sys.argv[1:2] == ["--all"]
    arguments = [pathlib.Path(word).absolute() for word in sys.argv[1 + run_all:]]
    if len(arguments) != (1 if run_all else 3):
        sys.exit(__doc__)
    root = arguments[0]
    if run_all:
        python = root / ".venv/bin/python"
        if not python.exists():
            print("make build", flush=True)
            run(["make", "build"], root)
        if pathlib.Path(sys.prefix) != root / ".venv" and python.exists():
            os.execv(python, [python, __file__, *sys.argv[1:]])  # which has Pillow and torchrun
        arguments += [root / "build/pareprop", root / "build"]
    elif not Image:
        print("this needs Pillow")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="walk-") as folder:
        walk = Walk(*arguments, pathlib.Path(folder), run_all)
        for path in [path for pattern in DOCUMENTS for path in sorted(root.glob(pattern))]:
            walk.document(path)
    walk.failures += [f"no command needs the rule {rule[0]!r}" for rule in SHORTER + ELSEWHERE
                      if rule[0] not in walk.used]
    if walk.failures:
        sys.exit("\n\n".join(["", *walk.failures]))


main()
