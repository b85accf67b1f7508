"""Random budgets of small networks: a run that begins keeps to its bytes, and what does not fit is refused."""

import json
import re

from attack import Attack, cases, main, run

STEPS = 4


def network(chance):
    flags = {"--model": chance.choice(("vit_cifar", "vit_digits", "swin_cifar")), "--batch": chance.choice((8, 24, 48)),
             "--accumulate": chance.choice((1, 1, 2)), "--ema": chance.choice((0, 0, 0.9)),
             "--workers": chance.choice((0, 1, 2)), "--precision": chance.choice(("fp32", "fp32", "bf16"))}
    if flags["--model"] != "swin_cifar":
        flags.update({"--depth": chance.randrange(1, 7), "--width": chance.choice((16, 32, 64))})
    return [str(word) for pair in flags.items() for word in pair]


class Budgets(Attack):
    @cases(10)
    def test_are_kept(self, chance, folder):
        common = ["train", *network(chance), "--data", "digits", "--steps", STEPS, "--eval-every", "2", "--threads",
                  "1", "--json", "-"]
        environment = {"XDG_CACHE_HOME": str(folder / "cache")}
        refused = run(*common, "--budget", "1KiB", "--out", folder / "refused", environment=environment)
        self.expect_refused(refused, "--budget", "mostly", codes=(2,))
        self.assertFalse((folder / "refused").exists())
        least = int(re.search(r"smallest budget for this batch is [^(]*\((\d+) bytes\)", refused.err)[1])
        budget = int(least * chance.choice((1.02, chance.uniform(1.02, 1.5), chance.uniform(1.02, 4))))
        done = run(*common, "--budget", f"{budget}B", "--out", folder / "run", environment=environment)
        with self.subTest(f"{budget} bytes, at least {least}: {' '.join(map(str, common))}"):
            self.expect_done(done)
            result = json.loads(done.out)
            self.assertEqual(result["budget_bytes"], budget, done)
            self.assertEqual(result["step"], STEPS, done)
            self.assertLessEqual(result["peak_bytes"], budget, done)
            self.assertGreater(result["peak_bytes"], 0, done)


if __name__ == "__main__":
    main()
