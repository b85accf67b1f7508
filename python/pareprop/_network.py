"""A model of Python as the engine's Network: its stacks, its weights and a training step."""

from __future__ import annotations

from typing import Any, Optional

import torch

from . import _core
from ._stack import Stack, record_calls
from ._step import Loss, batch_of, on_meta, run_step, with_samples
from .models import Model


class Described:
    """A network of the engine, and what a plan of it is for."""

    def __init__(self, network: _core.Network, stacks: list[str], batch: int) -> None:
        self.network = network
        self.stacks = stacks
        """The names of the stacks in the model, from input to output."""
        self.batch = batch


def is_exact(model: torch.nn.Module) -> bool:
    """Whether streams of the model are fixed-point numbers."""
    return any(part.exact for part in model.modules() if isinstance(part, (Stack, Model)))


def called_stacks(model: torch.nn.Module, sample: Any, loss: Loss) -> list[tuple[str, Stack]]:
    """The stacks of the model in the order in which a step calls them."""
    names = {id(module): name for name, module in model.named_modules() if isinstance(module, Stack)}
    if not names:
        raise ValueError(
            "the model has no pareprop.Stack; for models that are not reversible use pareprop.fit(model, sample, "
            "budget)"
        )
    with record_calls() as calls, torch.no_grad(), torch.random.fork_rng(devices=[]):
        args = with_samples(sample, batch_of(sample))
        model(**args) if isinstance(args, dict) else model(*args)
    if len(set(map(id, calls))) != len(calls):
        raise ValueError("a stack of the model is called twice in one step; plans are for models that call each once")
    return [(names[id(stack)], stack) for stack in calls]


def describe(model: torch.nn.Module, sample: Any, loss: Loss = None, *, meta: bool = False) -> Described:
    """The model itself, or a copy of it on the meta device."""
    if isinstance(model, Model):
        batch = sample if isinstance(sample, int) else batch_of(sample)
        return Described(model.on_meta() if meta else model.engine, [], batch)
    if isinstance(sample, int):
        raise TypeError(
            "sample: a number of samples is enough for pareprop.models only; give the arguments of the model"
        )
    device: Optional[torch.device] = None
    if meta:
        model, device = on_meta(model), torch.device("meta")
        sample = with_samples(sample, batch_of(sample), device)
    stacks = called_stacks(model, sample, loss)
    engines = []
    for _, stack in stacks:
        assert stack._engine is not None
        engines.append(stack._engine)

    def step(samples: int) -> None:
        run_step(model, with_samples(sample, samples), loss)

    weights = [weight for weight in model.parameters()]
    return Described(_core.Network(engines, weights, step), [name for name, _ in stacks], batch_of(sample))
