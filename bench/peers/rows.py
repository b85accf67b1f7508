"""The problems of the race, and who races."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Row:
    model: str
    batch: int
    overrides: dict = field(default_factory=dict)

    @property
    def label(self):
        length = f"x{self.overrides['length']}" if "length" in self.overrides else ""
        pixels = f"-{self.overrides['image_size']}px" if "image_size" in self.overrides else ""
        plain = "-plain" if self.plain else ""
        return f"{self.model}-b{self.batch}{length}{pixels}{plain}"

    @property
    def plain(self):
        """An ordinary network, on both sides."""
        return self.overrides.get("plain", False)

    def admits(self, name, precision):
        """torch_matmul keeps a score for every two tokens, tens of GB for the long rows; a part of a batch is
        smaller than the batch; exact budgets are those of one row."""
        if self in LONG_ROWS and name == "torch_matmul":
            return False
        if name in WITHIN:
            return self == WITHIN_ROW and precision == WITHIN[name][1]
        return SPLIT[name][1] < self.batch if name in SPLIT else True


ROWS = [
    Row("vit_tiny", 1),
    Row("vit_small", 4),
    Row("vit_small", 32),
    Row("vit_base", 8),
    Row("swin_tiny", 4),
    Row("swin_tiny", 16),
    Row("mvit_tiny", 4),
    Row("roberta_base", 4, {"length": 128}),
]

# Every family, as small as it gets with a shifted window, a padded map and a transition in it.
QUICK_ROWS = [
    Row("vit_tiny", 4, {"depths": [4], "width": 48, "image_size": 96, "classes": 10}),
    Row("swin_tiny", 4, {"depths": [3, 1, 2, 1], "width": 24, "image_size": 56, "classes": 10}),
    Row("mvit_tiny", 4, {"depths": [2, 2, 3, 1], "width": 16, "image_size": 48, "classes": 10}),
    Row("roberta_base", 4, {"depths": [4], "width": 48, "length": 32, "vocabulary": 101}),
]

# One sample of 4096 tokens: no batch is left to split.
LONG_ROWS = [Row("vit_small", 1, {"image_size": 1024}), Row("roberta_base", 1, {"length": 4096})]

# Throughput against memory.
FRONTIER_ROWS = [Row("vit_small", 32), Row("swin_tiny", 16), Row("roberta_base", 8, {"length": 128}), *LONG_ROWS]
FRONTIER_QUICK_ROWS = [row for row in QUICK_ROWS if row.model in ("vit_tiny", "swin_tiny")]


def plain_ones(rows):
    """The ordinary networks of these sizes, as far as they are here in PyTorch too."""
    return [Row(row.model, row.batch, {**row.overrides, "plain": True}) for row in rows
            if row not in LONG_ROWS and not row.model.startswith("mvit")]

OURS = ["ours_stored", "ours_checkpoint", "ours_reprop", "ours_pareprop", "ours_auto"]
STORED_FORMS = {"torch_sdpa": "sdpa", "torch_matmul": "matmul"}
# These use the attention of the faster of the forms.
OTHER_RIVALS = ["torch_compile", "torch_checkpoint", "torch_reversible"]
REVERSIBLE = ["ours_reprop", "ours_pareprop", "torch_reversible"]
HUGGING_FACE = "hugging_face"
CONTESTANTS = OURS + list(STORED_FORMS) + OTHER_RIVALS + [HUGGING_FACE]
HUGGING_FACE_FAMILIES = ("vit", "swin", "roberta")

# Of the frontier. Ours within a share of what our stored training takes; torch.compile with its
# activation_memory_budget.
SHARES = {f"ours_at_{percent}": percent / 100 for percent in (5, 15, 30, 60, 100)}
COMPILE_BUDGETS = {f"torch_compile_at_{percent}": percent / 100 for percent in (10, 30, 60, 100)}
# MiB of activations in which ours are set against PyTorch's stored training of the whole batch, a tenth of what that
# takes, and in which precision.
WITHIN = {"ours_within_130MiB": (130, "bf16"), "ours_within_150MiB": (150, "fp32")}
WITHIN_ROW = FRONTIER_ROWS[0]
BUDGETS = [*SHARES, *WITHIN]
# PyTorch's may split their batch as well: its gradients are the sum of those of micro-batches of N samples.
# torch_stored: eager, with the faster form of attention; torch_compile: stored as well.
SPLIT = {f"{rival}_by_{samples}": (rival, samples)
         for rival in ("torch_stored", "torch_checkpoint", "torch_reversible", "torch_compile",
                       *(name for name, share in COMPILE_BUDGETS.items() if share < 1))
         for samples in (1, 2, 4, 8, 16)}
FRONTIER = ["ours_reprop", "ours_pareprop", *BUDGETS, "ours_stored",
            *STORED_FORMS, "torch_checkpoint", "torch_reversible", *COMPILE_BUDGETS, *SPLIT]

# Largest relative difference of a gradient from that of stored float32 PyTorch, matmul attention. In bf16 ours
# were 0.02 away at most, PyTorch's own up to 0.4 (the bias of a norm over all patches of 16 images: the sum of
# gradients that were rounded); a wrong one, about 1.
BARS = {"fp32": 1e-3, "bf16": 1e-1}
RIVALS_BARS = {"fp32": 1e-3, "bf16": 5e-1}


def candidates(frontier, plain):
    """Plain networks cannot be reversed, but checkpointed."""
    if plain:
        return ["ours_checkpoint", *(name for name in FRONTIER if name not in REVERSIBLE)]
    return FRONTIER if frontier else CONTESTANTS


def is_ours(name):
    return name.startswith("ours_")


def chosen(names, patterns):
    """Those that match one of the patterns, separated by commas; each must match one."""
    wanted = [p for p in patterns.split(",") if p]
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"nothing matches '{pattern}': expected some of {', '.join(names)}")
    return [name for name in names if any(fnmatchcase(name, p) for p in wanted)]
