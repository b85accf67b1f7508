"""Samples and losses of training steps, as plan, verify, trace and fit take them."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, Optional

import torch
from torch import Tensor

from . import _core

Loss = Optional[Callable[[Any], Tensor]]


def arguments_of(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A tensor is the only argument of the model, a tuple or list its arguments, a dict its keyword arguments."""
    if isinstance(sample, Mapping):
        return (), dict(sample)
    if isinstance(sample, (tuple, list)):
        return tuple(sample), {}
    return (sample,), {}


def batch_of(sample: Any) -> int:
    """The first dimension of the first tensor."""
    args, kwargs = arguments_of(sample)
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and value.dim() > 0:
            return value.shape[0]
    raise TypeError(
        f"sample: expected a tensor, or a tuple or dict with one whose first dimension is the batch, got {sample!r}"
    )


def with_samples(sample: Any, samples: int, device: Optional[torch.device] = None) -> Any:
    """The same arguments with another number of samples: tensors of the batch are repeated."""
    batch = batch_of(sample)

    def changed(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        moved = value if device is None else value.to(device)
        if moved.dim() == 0 or moved.shape[0] != batch or samples == batch:
            return moved
        rows = torch.arange(samples, device=moved.device) % batch
        return moved.detach().index_select(0, rows)

    args, kwargs = arguments_of(sample)
    return {key: changed(value) for key, value in kwargs.items()} if kwargs else tuple(map(changed, args))


def loss_of(output: Any, loss: Loss = None) -> Tensor:
    """The loss of an output: `loss(output)`, its own member `loss`, or else the mean of its tensors."""
    if loss is not None:
        return loss(output)
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, Tensor):
        return own
    several = output.values() if isinstance(output, Mapping) else output
    values = several if isinstance(output, (tuple, list, Mapping)) else [output]
    means = [value.float().mean() for value in values if isinstance(value, Tensor) and value.requires_grad]
    if not means:
        raise TypeError(
            f"the model returned {type(output).__name__}, from which no loss can be made: name a function loss(output)"
        )
    return torch.stack(means).sum()


def run_step(model: torch.nn.Module, sample: Any, loss: Loss) -> None:
    """One training step without the optimizer, with the same randomness each time."""
    args, kwargs = arguments_of(sample)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss_of(model(*args, **kwargs), loss).backward()  # type: ignore[no-untyped-call]


def on_meta(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of the model on the meta device: shapes without memory."""


    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        empty = torch.empty_like(tensor, device="meta", requires_grad=False)
        made: Tensor = empty
        if isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = made
    return copy.deepcopy(model, memo)


def parse_budget(budget: int | str) -> int:
    """Bytes, or text such as "8GiB"."""
    if isinstance(budget, str):
        return _core.parse_byte_size(budget)
    if isinstance(budget, bool) or not isinstance(budget, numbers.Real) or not math.isfinite(budget):
        raise TypeError(f'budget: got {budget!r}; expected a number of bytes, or text such as "8GiB"')
    return int(budget)


