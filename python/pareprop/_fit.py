"""Budgets for models that are not reversible: which of their repeated blocks are checkpointed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional, Union

import torch
from torch.utils.checkpoint import checkpoint

from . import _core
from ._step import Loss, batch_of, on_meta, parse_budget, run_step, with_samples
from ._text import html_table, table

_STATE = {"adamw": 2, "sgd": 1, "adafactor": 0, "none": 0}
_HEADER = ["", "checkpointed", "peak", "fits"]


@dataclass(frozen=True)
class Fit:
    """Which blocks of a model are checkpointed, and what a training step needs then. Made by `fit`."""

    budget_bytes: int
    batch: int
    blocks: list[str]
    """The names of the repeated blocks, in the order of the model."""
    checkpointed: list[str]
    """Those whose forward pass is computed again in the backward pass."""
    peak_bytes: int
    stored_peak_bytes: int
    """With nothing checkpointed."""
    smallest_peak_bytes: int
    """With every block checkpointed."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def _cells(self) -> list[list[str]]:
        count = len(self.blocks)
        rows = [
            ("stored", 0, self.stored_peak_bytes),
            ("all checkpointed", count, self.smallest_peak_bytes),
            ("the plan", len(self.checkpointed), self.peak_bytes),
        ]
        fits = {True: "yes", False: "no"}
        return [
            [name, f"{some} of {count}", _core.bytes_text(peak), fits[peak <= self.budget_bytes]]
            for name, some, peak in rows
        ]

    def _title(self) -> str:
        return f"batch {self.batch}, budget {_core.bytes_text(self.budget_bytes)} ({self.budget_bytes} bytes)"

    def __repr__(self) -> str:
        return f"{self._title()}\n\n{table(_HEADER, self._cells())}"

    def _repr_html_(self) -> str:
        return f"<p>{self._title()}</p>{html_table(_HEADER, self._cells())}"


def _repeated(model: torch.nn.Module) -> list[str]:
    """The outermost lists of two or more modules of one type."""
    found: list[str] = []
    for name, module in model.named_modules():
        if not isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        children = list(module)
        if len(children) < 2 or any(type(child) is not type(children[0]) for child in children):
            continue
        if not any(name.startswith(other + ".") for other in found):
            found.append(name)
    return found


def _block_names(model: torch.nn.Module, blocks: Union[str, Sequence[str], None]) -> list[str]:
    lists = _repeated(model) if blocks is None else [blocks] if isinstance(blocks, str) else list(blocks)
    names: list[str] = []
    for name in lists:
        try:
            found = model.get_submodule(name)
        except AttributeError as error:
            raise ValueError(
                f"fit: the model has no '{name}'; name a ModuleList of it, such as 'encoder.layer'"
            ) from error
        if not isinstance(found, Iterable):
            raise ValueError(
                f"fit: '{name}' is a {type(found).__name__}; expected a ModuleList or Sequential of blocks"
            )
        names += [f"{name}.{i}" if name else str(i) for i, _ in enumerate(found)]
    if not names:
        raise ValueError(
            "fit: the model has no repeated blocks: no ModuleList or Sequential with two or more modules of one type. "
            "Name one with blocks='encoder.layer'"
        )
    return names


def _new(kind: type[torch.nn.Module], *arguments: Any) -> torch.nn.Module:
    return kind.__new__(kind, *arguments)


def _checkpointing(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """A class of modules whose forward pass is computed again in the backward pass; copies are of the class itself."""
    forward: Any = kind.forward
    reduce: Any = kind.__reduce_ex__

    def recomputed(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return forward(self, *args, **kwargs)
        return checkpoint(forward, self, *args, use_reentrant=False, **kwargs)

    def reduced(self: torch.nn.Module, protocol: Any) -> Any:
        _, (_, *others), *rest = reduce(self, protocol)
        return (_new, (kind, *others), *rest)

    members = {"forward": recomputed, "__reduce_ex__": reduced, "__module__": kind.__module__, "_stored_class": kind}
    return type(kind.__name__, (kind,), members)


def _checkpoint(model: torch.nn.Module, names: Iterable[str]) -> None:
    """These blocks, and no others, compute their forward pass again."""
    for module in model.modules():
        own = getattr(type(module), "_stored_class", None)
        if own is not None:
            module.__class__ = own
    made: dict[type[torch.nn.Module], type[torch.nn.Module]] = {}
    for name in names:
        block = model.get_submodule(name)
        if "forward" in block.__dict__:
            raise ValueError(
                f"fit: block '{name}' has a forward of its own (something replaced it), so it cannot be checkpointed; "
                "call fit before whatever replaces it"
            )
        kind = type(block)
        if kind not in made:
            made[kind] = _checkpointing(kind)
        block.__class__ = made[kind]


class _DryStep:
    """Training steps on the meta device, whose bytes are counted."""

    def __init__(self, model: torch.nn.Module, sample: Any, loss: Loss, copies: int) -> None:
        _core.install_meta_meter()
        before = _core.usage(meta=True)["live"]
        self._model = on_meta(model)
        self._sample = with_samples(sample, batch_of(sample), torch.device("meta"))
        self._loss = loss
        weights = [weight for weight in self._model.parameters() if weight.requires_grad]
        self._state = [torch.empty_like(weight) for weight in weights for _ in range(copies)]
        self._before = before

    def peak(self, names: Iterable[str]) -> int:
        _checkpoint(self._model, names)
        self._model.zero_grad(set_to_none=True)
        _core.reset_peaks(meta=True)
        run_step(self._model, self._sample, self._loss)
        peak = int(_core.usage(meta=True)["peak"] - self._before)
        self._model.zero_grad(set_to_none=True)
        return peak


def fit(
    model: torch.nn.Module,
    sample: Any,
    budget: Union[int, str],
    *,
    blocks: Union[str, Sequence[str], None] = None,
    optimizer: Optional[str] = "adamw",
    loss: Loss = None,
) -> Fit:
    """Makes a model that is not reversible train within a number of bytes: repeated blocks are checkpointed
    (`torch.utils.checkpoint`), as few as possible.

    Each candidate is a training step on torch's meta device, on shapes only, whose bytes are counted. Operators for
    which torch chooses another kernel there than on the CPU can take a little more or less.

    Arguments:
        model: any module. What it computes, its parameters and its state_dict stay as they are. A copy of it, or what
            is loaded from a file, has no checkpointed blocks; call `fit` again for it, or to change the budget.
        sample: the arguments of the model: a tensor, a tuple, or a dict.
        budget: bytes for weights, gradients, optimizer and activations; a number, or text such as "8GiB".
        blocks: the name of the list of repeated blocks, such as "vit.encoder.layer"; else they are looked for.
        optimizer: "adamw", "sgd", "adafactor" or None: how much state there is.
        loss: makes a loss of the output; else its own member `loss`, or the mean of its tensors.

    Raises ValueError if the model has no repeated blocks, or if the budget is too small with all of them checkpointed.
    """
    bytes_ = parse_budget(budget)
    kind = optimizer or "none"
    if kind not in _STATE:
        raise ValueError(f"fit: optimizer is {optimizer!r}; expected adamw, sgd, adafactor or None")
    _checkpoint(model, [])
    names = _block_names(model, blocks)
    dry = _DryStep(model, sample, loss, _STATE[kind])
    most, least = dry.peak([]), dry.peak(names)
    if least > bytes_:
        raise ValueError(
            f"fit: batch {batch_of(sample)} needs {_core.bytes_text(least)} with every block checkpointed, more than "
            f"the budget of {_core.bytes_text(bytes_)}; make the batch smaller, or the budget at least {least} bytes"
        )
    # The first blocks are checkpointed: when their turn comes, what the later ones kept is free already.
    low, high, peak = (0, 0, most) if most <= bytes_ else (0, len(names), least)
    while low < high:
        middle = (low + high) // 2
        found = dry.peak(names[:middle])
        if found <= bytes_:
            high, peak = middle, found
        else:
            low = middle + 1
    _checkpoint(model, names[:high])
    return Fit(bytes_, batch_of(sample), names, names[:high], peak, most, least)
