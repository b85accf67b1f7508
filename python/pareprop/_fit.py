"""Budgets for models that are not reversible: which of their repeated blocks are stored, and which checkpointed."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional, Union

import torch
from torch.utils.checkpoint import checkpoint

from . import _core
from ._dry_step import DryStep, Step
from ._step import Loss, batch_of, parse_budget
from ._text import html_table, table

_STATE = {"adamw": 2, "sgd": 1, "adafactor": 0, "none": 0}
_HEADER = ["", "checkpointed", "peak", "fits"]
# What torch.utils.checkpoint keeps of a block besides its inputs: the state of torch's generator, and small objects.
_CHECKPOINT = 8192


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
    at_most_bytes: int
    """The peak and a margin for scratch memory of torch itself: at most the budget."""
    stored_peak_bytes: int
    """With nothing checkpointed."""
    stored_at_most_bytes: int
    smallest_peak_bytes: int
    """With every block checkpointed."""
    smallest_at_most_bytes: int

    @property
    def policies(self) -> str:
        """A letter for each block, from input to output: store or checkpoint."""
        return "".join("C" if name in self.checkpointed else "S" for name in self.blocks)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "policies": self.policies}

    def _cells(self) -> list[list[str]]:
        count = len(self.blocks)
        rows = [
            ("stored", 0, self.stored_peak_bytes, self.stored_at_most_bytes),
            ("all checkpointed", count, self.smallest_peak_bytes, self.smallest_at_most_bytes),
            ("the plan", len(self.checkpointed), self.peak_bytes, self.at_most_bytes),
        ]
        fits = {True: "yes", False: "no"}
        return [
            [name, f"{some} of {count}", _core.bytes_text(peak), fits[at_most <= self.budget_bytes]]
            for name, some, peak, at_most in rows
        ]

    def _title(self) -> str:
        return f"batch {self.batch}, budget {_core.bytes_text(self.budget_bytes)} ({self.budget_bytes} bytes)"

    def __repr__(self) -> str:
        return (
            f"{self._title()}\n\n{table(_HEADER, self._cells())}\n\n"
            f"Policies, one letter per block from input to output:\n  {self.policies}"
        )

    def _repr_html_(self) -> str:
        return (
            f"<p>{self._title()}</p>{html_table(_HEADER, self._cells())}"
            f"<p>Policies: <code>{self.policies}</code></p>"
        )


def _stored_class(module: torch.nn.Module) -> type[torch.nn.Module]:
    """Its class without checkpointing."""
    kind: type[torch.nn.Module] = getattr(type(module), "_stored_class", type(module))
    return kind


def _repeated(model: torch.nn.Module) -> list[str]:
    """The outermost lists of two or more modules of one type; if these are stages, the lists inside of them."""
    found = []
    for name in _lists(model, lambda children: len(children) > 1):
        found += _of_stages(model.get_submodule(name), f"{name}." if name else "") or [name]
    return found


def _lists(model: torch.nn.Module, wanted: Callable[[list[torch.nn.Module]], bool]) -> list[str]:
    """The outermost lists of modules of one type that are wanted."""
    found: list[str] = []
    for name, module in model.named_modules():
        if not isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        children = list(module)
        if len({_stored_class(child) for child in children}) != 1 or not wanted(children):
            continue
        if not any(not other or name.startswith(other + ".") for other in found):
            found.append(name)
    return found


def _of_stages(stages: torch.nn.Module, prefix: str) -> list[str]:
    """The lists of blocks of stages, as a Swin has them: modules of several sizes, with one list each of blocks that
    are alike. None where these are no stages."""
    sizes = {tuple(parameter.shape for parameter in stage.parameters()) for stage in stages.children()}
    if len(sizes) == 1:
        return []
    found, kinds = [], set()
    for name, stage in stages.named_children():
        inner = _lists(stage, lambda children: any(children[0].children()))
        if len(inner) != 1 or not inner[0]:
            return []
        found.append(f"{prefix}{name}.{inner[0]}")
        kinds.add(_stored_class(next(stage.get_submodule(inner[0]).children())))
    return found if len(kinds) == 1 else []


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
        if not isinstance(found, (torch.nn.ModuleList, torch.nn.Sequential)):
            raise ValueError(
                f"fit: '{name}' is a {type(found).__name__}; expected a ModuleList or Sequential of blocks"
            )
        # Each once, also where a block is in the list several times.
        names += [f"{name}.{child}" if name else child for child, _ in found.named_children()]
    for name in names:
        if any(other.startswith(name + ".") for other in names):
            raise ValueError(f"fit: block '{name}' has other blocks inside it; name one of the lists")
    if not names:
        raise ValueError(
            "fit: the model has no repeated blocks: no ModuleList or Sequential with two or more modules of one type. "
            "Name one with blocks='encoder.layer'"
        )
    return names


def _new(kind: type[torch.nn.Module], *arguments: Any) -> torch.nn.Module:
    return kind.__new__(kind, *arguments)


def _statistics(block: torch.nn.Module) -> list[torch.Tensor]:
    """Running ones, which a forward pass changes."""
    kind = torch.nn.modules.batchnorm._NormBase
    norms = [part for part in block.modules() if isinstance(part, kind) and part.training and part.track_running_stats]
    return [buffer for norm in norms for buffer in norm.buffers(recurse=False)]


@contextlib.contextmanager
def _kept(buffers: list[torch.Tensor]) -> Iterator[None]:
    """They are afterwards what they were before."""
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, before):
                buffer.copy_(value)


def _is_cache(value: Any) -> bool:
    """Whether it is a cache of keys and values of Hugging Face, which blocks add to."""
    return hasattr(value, "get_seq_length") and hasattr(value, "update")


def _twin(value: Any) -> Any:
    """A copy of a cache, or of a part of it, with the same tensors."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_twin, value))
    if isinstance(value, dict):
        return {key: _twin(part) for key, part in value.items()}
    if isinstance(value, (torch.Tensor, torch.nn.Module, type)) or not hasattr(value, "__dict__"):
        return value
    twin = copy.copy(value)
    twin.__dict__.update({key: _twin(part) for key, part in value.__dict__.items()})
    return twin


def _on_twins(forward: Callable[..., Any], args: Any, kwargs: Any) -> Callable[..., Any]:
    """What computes `forward` for the first time, and then with the caches as they were at first."""
    twins = {id(value): _twin(value) for value in (*args, *kwargs.values()) if _is_cache(value)}
    if not twins:
        return forward
    calls = 0

    def again(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            return forward(*args, **kwargs)

        def earlier(value: Any) -> Any:
            return _twin(twins[id(value)]) if _is_cache(value) else value

        return forward(*map(earlier, args), **{key: earlier(value) for key, value in kwargs.items()})

    return again


def _checkpointing(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """A class of modules whose forward pass is computed again in the backward pass; copies are of the class itself."""
    forward: Any = kind.forward
    reduce: Any = kind.__reduce_ex__

    def recomputed(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return forward(self, *args, **kwargs)
        function = _on_twins(forward, args, kwargs)
        statistics = _statistics(self)
        if statistics:
            kwargs["context_fn"] = lambda: (contextlib.nullcontext(), _kept(statistics))
        return checkpoint(function, self, *args, use_reentrant=False, **kwargs)

    def reduced(self: torch.nn.Module, protocol: Any) -> Any:
        _, (_, *others), *rest = reduce(self, protocol)
        return (_new, (kind, *others), *rest)

    members = {"forward": recomputed, "__reduce_ex__": reduced, "__module__": kind.__module__, "_stored_class": kind}
    return type(kind.__name__, (kind,), members)


def _checkpoint(model: torch.nn.Module, names: Iterable[str]) -> None:
    """These blocks, and no others, compute their forward pass again."""
    for module in model.modules():
        module.__class__ = _stored_class(module)
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


class _Choices:
    """What a step takes, for each set of checkpointed blocks."""

    def __init__(self, dry: DryStep, names: list[str]) -> None:
        self._dry = dry
        self._names = names
        self._seen: dict[frozenset[str], Step] = {}

    def step(self, checkpointed: Iterable[str]) -> Step:
        chosen = frozenset(checkpointed)
        if chosen not in self._seen:
            _checkpoint(self._dry.model, chosen)
            self._seen[chosen] = self._dry.run(self._names)
        return self._seen[chosen]

    def at_most(self, checkpointed: Iterable[str]) -> int:
        chosen = frozenset(checkpointed)
        peak = self.step(chosen).peak
        return peak + (peak - self._dry.lasting) // 256 + _CHECKPOINT * len(chosen) + 4096

    def fastest(self, budget: int) -> Optional[list[str]]:
        """The blocks to checkpoint for the fastest step that fits; None if none does."""
        stored, lean = self.step([]), self.step(self._names)
        order = [name for name in reversed(lean.blocks) if name in stored.blocks]  # from the input on
        blocks, kept = [], 0
        for name in order:
            own, again = stored.blocks[name], lean.blocks[name]
            more = max(0, own.kept - again.kept)
            kept += more
            blocks.append(
                _core.SeenBlock(
                    live=again.before,
                    kept=more,
                    extra_stored=max(0, max(own.peak, own.forward_peak) - again.before - kept),
                    extra_checkpointed=max(0, max(again.peak, again.forward_peak) - again.before),
                    macs=own.flops / 2,
                )
            )
        chosen = _core.choose_checkpoints(
            blocks,
            above=max(lean.above, stored.above - kept),
            below=lean.below,
            budget=budget,
            takes=lambda which: self.at_most(name for name, yes in zip(order, which) if yes),
        )
        if chosen is None and self.at_most(self._names) <= budget:
            return list(self._names)
        return None if chosen is None else [name for name, yes in zip(order, chosen) if yes]


def fit(
    model: torch.nn.Module,
    sample: Any,
    budget: Union[int, str],
    *,
    blocks: Union[str, Sequence[str], None] = None,
    optimizer: Optional[str] = "adamw",
    loss: Loss = None,
) -> Fit:
    """Makes a model that is not reversible train within a number of bytes: the planner chooses for each of its repeated
    blocks whether it is stored or checkpointed (`torch.utils.checkpoint`), so that the step is as fast as can be.

    A few training steps are run on shapes only: they show what each block keeps and computes. What the planner chooses
    is run in the same way, and counts by what it really takes. Convolutions and attention also run once on zeros, which
    shows their scratch memory.

    Arguments:
        model: any module. What it computes, its parameters and its state_dict stay as they are. A copy of it, or what
            is loaded from a file, has no checkpointed blocks; call `fit` again for it, or to change the budget.
        sample: the arguments of the model: a tensor, a tuple, or a dict.
        budget: bytes for weights, gradients, optimizer and activations; a number, or text such as "8GiB".
        blocks: the name of the list of repeated blocks, such as "vit.encoder.layer"; else they are looked for.
        optimizer: "adamw", "sgd", "adafactor" or None: how much state there is.
        loss: makes a loss of the output; else its own member `loss`, or the mean of its tensors.

    Raises ValueError if the model has no repeated blocks or is in eval mode, or if the budget is too small whatever is
    checkpointed; the model is as it was then.
    """
    bytes_ = parse_budget(budget)
    kind = optimizer or "none"
    if kind not in _STATE:
        raise ValueError(f"fit: optimizer is {optimizer!r}; expected adamw, sgd, adafactor or None")
    if not model.training:
        raise ValueError("fit: the model is in eval mode; call model.train() first")
    names = _block_names(model, blocks)
    choices = _Choices(DryStep(model, sample, loss, _STATE[kind]), names)
    chosen = choices.fastest(bytes_)
    if chosen is None:
        least = choices.at_most(names)
        raise ValueError(
            f"fit: batch {batch_of(sample)} needs {_core.bytes_text(least)} with every block checkpointed, more than "
            f"the budget of {_core.bytes_text(bytes_)}; make the batch smaller, or the budget at least {least} bytes"
        )
    _checkpoint(model, chosen)
    return Fit(
        budget_bytes=bytes_,
        batch=batch_of(sample),
        blocks=names,
        checkpointed=chosen,
        peak_bytes=choices.step(chosen).peak,
        at_most_bytes=choices.at_most(chosen),
        stored_peak_bytes=choices.step([]).peak,
        stored_at_most_bytes=choices.at_most([]),
        smallest_peak_bytes=choices.step(names).peak,
        smallest_at_most_bytes=choices.at_most(names),
    )
