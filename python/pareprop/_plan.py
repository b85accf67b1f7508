"""The fastest way to train a model in a number of bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional, Union

import torch

from . import _core
from ._network import Described, describe, is_exact
from ._stack import Stack
from ._step import Loss, batch_of, parse_budget
from ._text import html_table, table
from .models import Model

_HEADER = ["", "peak", "activations", "fits", "step, about", "speed"]


@dataclass(frozen=True)
class Row:
    """A mode, or the plan itself."""

    mode: str
    peak_bytes: int
    at_most_bytes: int
    activation_bytes: int
    fits: bool
    step_seconds: float


@dataclass(frozen=True)
class Plan:
    """What to keep of each block, for a budget. Made by `plan`; shown as a table."""

    network: str
    """The name of the network, or the type of the model."""
    batch: int
    precision: str
    budget_bytes: int
    fits: bool
    step: _core.StepPlan
    predicted_bytes: dict[str, int]
    """The peak of each kind of memory alone."""
    peak_bytes: int
    at_most_bytes: int
    """The peak and a margin for scratch memory of torch: what has to fit."""
    smallest_budget_bytes: int
    largest_batch: int
    micro_batch: int
    """If the batch does not fit: the largest part of it that does; 0 if none does."""
    accumulate: int
    """How many such parts make the batch."""
    stored_micro_batch: int
    """If the batch fits only with recomputation: the largest part that fits with everything stored; 0 if none does."""
    policies: str
    """A letter for each block, stacks separated by spaces: store, products, checkpoint, anchor, reverse."""
    measured: bool
    modes: list[Row]
    stacks: list[str] = field(repr=False)

    def apply(self, model: torch.nn.Module) -> None:
        """Gives the stacks of the model their plans, for all later calls. Raises ValueError if nothing fits."""
        if not self.fits:
            raise ValueError(self._advice())
        if isinstance(model, Model):
            model.plan = self.step
            return
        for name, own in zip(self.stacks, self.step.stacks):
            stack = model.get_submodule(name)
            if not isinstance(stack, Stack):
                raise TypeError(f"plan: '{name}' is no Stack in this model; the plan was made for another one")
            stack.plan = own

    def to_json(self) -> dict[str, Any]:
        """Under the keys of `pareprop plan --json`, without those about flags of the program and about accelerators.

        The last of `modes` is the plan.
        """
        speed = self._speed()
        own = self.modes[-1]
        return {
            "network": self.network,
            "batch": self.batch,
            "precision": self.precision,
            "fits": self.fits,
            "budget_bytes": self.budget_bytes,
            "predicted_peak_bytes": self.peak_bytes,
            "predicted_at_most_bytes": self.at_most_bytes,
            "predicted_activation_bytes": own.activation_bytes,
            "smallest_budget_bytes": self.smallest_budget_bytes,
            "largest_batch": self.largest_batch,
            "micro_batch": self.micro_batch,
            "accumulate": self.accumulate,
            "stored_micro_batch": self.stored_micro_batch,
            "mode": self.step.mode,
            "overlap": self.step.overlaps(),
            "recompute_between": self.step.recompute_between,
            "step_seconds": own.step_seconds,
            "times_note": "measured" if self.measured else "estimated from multiply-accumulates",
            "measured": self.measured,
            "speed": speed(own),
            "policies": self.policies,
            "modes": [{**row.__dict__, "speed": speed(row)} for row in self.modes],
            "predicted_bytes": self.predicted_bytes,
            "blocks": [
                {"stack": s, "block": i, "policy": policy}
                for s, stack in enumerate(self.step.stacks)
                for i, policy in enumerate(stack.policies)
            ],
        }

    def _speed(self) -> Any:
        stored = next(row.step_seconds for row in self.modes if row.mode == "stored")
        return lambda row: stored / row.step_seconds if row.step_seconds > 0 else 1.0

    def _cells(self) -> list[list[str]]:
        speed = self._speed()
        return [
            [
                row.mode,
                _core.bytes_text(row.peak_bytes),
                _core.bytes_text(row.activation_bytes),
                "yes" if row.fits else "no",
                f"{row.step_seconds:.3g} s",
                f"{100 * speed(row):.1f} %",
            ]
            for row in self.modes
        ]

    def _advice(self) -> str:
        advice = f"Smallest budget for this batch: {_core.bytes_text(self.smallest_budget_bytes)}."
        if self.largest_batch:
            advice += f" Largest batch for this budget: {self.largest_batch}."
        if not self.fits:
            advice = f"batch {self.batch} does not fit in {_core.bytes_text(self.budget_bytes)}. {advice}"
        return advice

    def _title(self) -> str:
        return f"batch {self.batch}, budget {_core.bytes_text(self.budget_bytes)} ({self.budget_bytes} bytes)"

    def __repr__(self) -> str:
        times = "" if self.measured else "Times are estimates; measure=True times a few steps.\n"
        return (
            f"{self._title()}\n\n{table(_HEADER, self._cells())}\n\n"
            f"Policies, one letter per block from input to output:\n  {self.policies}\n{times}{self._advice()}"
        )

    def _repr_html_(self) -> str:
        return (
            f"<p>{self._title()}</p>{html_table(_HEADER, self._cells())}"
            f"<p>Policies: <code>{self.policies}</code></p><p>{self._advice()}</p>"
        )


def plan(
    model: torch.nn.Module,
    sample: Any,
    *,
    budget: Union[int, str],
    optimizer: Optional[str] = "adamw",
    state: str = "fp32",
    loss: Loss = None,
    accumulates: bool = False,
    precision: Optional[str] = None,
    measure: bool = False,
) -> Plan:
    """Finds the fastest way to train a model with stacks, or one of `pareprop.models`, within a number of bytes.

    Steps are run on torch's meta device, on shapes only, so planning takes seconds and almost no memory.

    Arguments:
        sample: the arguments of the model: a tensor, a tuple, or a dict. For `pareprop.models` also a batch size.
        budget: bytes for weights, gradients, optimizer and activations; a number, or text such as "8GiB".
        optimizer: "adamw", "sgd" (with momentum), "adafactor" or None; `state` is what it is kept in.
        loss: makes a loss of the output; else its own member `loss`, or the mean of its tensors.
        accumulates: whether gradients exist already when a step begins.
        precision: "bf16" for `pareprop.models` that are trained under autocast; else the type of the weights.
        measure: time a few real steps of the model first. Its gradients are dropped.
    """
    bytes_ = parse_budget(budget)
    made: list[Described] = []

    def make() -> _core.Network:
        made.append(describe(model, sample, loss, meta=True))
        return made[-1].network

    wide = any(parameter.dtype == torch.float64 for parameter in model.parameters())
    batch = sample if isinstance(sample, int) else batch_of(sample)
    precision = precision or ("fp64" if wide else "fp32")
    planner = _core.Planner(
        make,
        batch=batch,
        precision=precision,
        exact=is_exact(model),
        optimizer=optimizer or "none",
        state=state,
        accumulates=accumulates,
    )
    measured = False
    if measure:
        measured = planner.measure(describe(model, sample, loss).network, bytes_)
        model.zero_grad(set_to_none=True)
    found = planner.plan(bytes_)
    rows = []
    for mode in planner.modes():
        step = planner.of_mode(mode)
        rows.append(_row(mode, planner.predict(step), bytes_, planner.seconds(step)))
    rows.append(_row("the plan", found.predicted, bytes_, found.seconds))
    return Plan(
        network=model.name if isinstance(model, Model) else type(model).__name__,
        batch=batch,
        precision=precision,
        budget_bytes=bytes_,
        fits=found.fits,
        step=found.step,
        predicted_bytes=found.predicted.by_tag,
        peak_bytes=found.predicted.total,
        at_most_bytes=found.predicted.at_most,
        smallest_budget_bytes=found.smallest_budget,
        largest_batch=found.largest_batch,
        micro_batch=found.micro_batch,
        accumulate=found.accumulate,
        stored_micro_batch=found.stored_micro_batch,
        policies=found.letters,
        measured=measured,
        modes=rows,
        stacks=made[0].stacks,
    )


def _row(mode: str, predicted: _core.Prediction, budget: int, seconds: float) -> Row:
    return Row(mode, predicted.total, predicted.at_most, predicted.activations, predicted.at_most <= budget, seconds)
