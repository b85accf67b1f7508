"""Absurd values for every numeric flag of every command: refused at once with a sentence that names the flag."""

import re

from attack import SMALL, Attack, cases, main, run
from PIL import Image

ABSURD = ("0", "-1", "1e300", "9e18", "9223372036854775807", "18446744073709551616", "nan", "inf", "-inf", "", "text",
          "1x", "--", "\u0663", "1e-400000", "1" + "0" * 400)

# Flags with a value that is no number.
WORDS = {"allow", "augment", "cache", "config", "data", "decay", "device", "distillation", "input", "json", "measure", "mode", "model", "modes",
         "optimizer", "optimizer-state", "out", "precision", "preset", "resume", "run", "scores", "shard", "streams", "svg",
         "sweep", "tokenizer", "update", "weights"}

# What is in range, absurd or not. Everything else of ABSURD must be refused.
MEANT = {
    "0": {"beta1", "beta2", "clip", "cutmix", "depth", "drop-path", "dropout", "early-stop", "ema", "epochs", "erase",
          "eval-every", "initial-std", "label-smoothing", "last-learning-rate", "mix-probability", "mixup",
          "momentum", "save-every", "seed", "threads", "train steps", "time-limit", "trace", "warmup", "weight-decay",
          "workers"},
    "9223372036854775807": {"seed"},
}

NETWORK = ["--model", "vit_cifar", "--width", "16", "--depth", "1"]
STEPS = 2  # of a command that is given a value which it takes


def flags_of(command):
    """Of its --help: names without the dashes, and the line each is on."""
    found = {}
    for line in run(command, "--help").out.splitlines():
        match = re.match(r"  (?:-\w,)?--([a-z0-9-]+)\S*(?: ([A-Z]+))?(?: \.\.\.)?\s", line)
        if match:
            found[match[1]] = line
    return found


def takes_value(line):
    return re.match(r"  \S*(=|(,\S+)* [A-Z]{2,})", line) or re.match(r"  --\S+=", line)


class Numbers(Attack):
    @classmethod
    def make(cls):
        cls.run_folder, image = cls.shared / "trained", cls.shared / "one.png"
        done = run(*SMALL, "--steps", "1", "--out", cls.run_folder)
        assert done.code == 0, done
        Image.new("L", (8, 8)).save(image)
        cls.commands = {
            "train": [*NETWORK, "--steps", STEPS, "--batch", "4", "--threads", "1"],
            "eval": ["--run", cls.run_folder],
            "predict": ["--run", cls.run_folder, image],
            "plan": [*NETWORK, "--batch", "1"],
            "verify": [*NETWORK, "--batch", "1"],
            "bench": [*NETWORK, "--batch", "1", "--rounds", "1", "--steps", "1", "--modes", "reprop"],
            "trace": [*NETWORK, "--batch", "1", "--steps", "1"],
            "demo": ["--steps", "1", "--batch", "4"],
            "doctor": ["--quick"],
        }
        cls.numeric = [(command, flag) for command in cls.commands
                       for flag, line in flags_of(command).items() if takes_value(line) and flag not in WORDS]
        assert len(cls.numeric) > 60, cls.numeric

    @cases(40)
    def test_absurd(self, chance, folder):
        command, flag = chance.choice(self.numeric)
        value = chance.choice(ABSURD)
        # --epochs counts where --steps is 0, --steps 0 trains for --epochs.
        others = ["--epochs", "0.01"] if (command, flag) == ("train", "steps") else []
        common = [word for word in self.commands[command]]
        if f"--{flag}" in common:
            at = common.index(f"--{flag}")
            del common[at:at + 2]
        with self.subTest(f"{command} --{flag} {value!r}"[:100]):
            done = run(command, *common, *others, f"--{flag}={value}", limit=60, cwd=folder)
            if {flag, f"{command} {flag}"} & MEANT.get(value, set()):
                self.expect_done(done)
                return
            self.expect_refused(done, f"--{flag}", codes=(2,))
            self.assertEqual(len(done.err.strip().splitlines()), 1, done)
            self.assertLess(len(done.err), 1000, done)
            self.assertLess(done.seconds, 5, "about a second, on a machine that does much else")
            self.assertEqual(list(folder.iterdir()), [], "a failed start leaves nothing")


if __name__ == "__main__":
    main()
