"""Gradients of every mode against ordinary autograd."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Optional

import torch

from . import _core
from ._network import describe, is_exact
from ._step import Loss
from ._text import html_table, table

_HEADER = ["mode", "max_rel_error", "bit_identical", "missing", "drift", "holds"]


@dataclass(frozen=True)
class Row:
    """One mode. `max_rel_error` is the largest relative error of all gradients."""

    mode: str
    max_rel_error: float
    bit_identical: bool
    missing_gradients: int
    drift: float
    error: str
    holds: bool


@dataclass(frozen=True)
class Verification:
    """What `verify` found. It is true if every row holds."""

    rows: list[Row]

    @property
    def holds(self) -> bool:
        return all(row.holds for row in self.rows)

    def __bool__(self) -> bool:
        return self.holds

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.rows]

    def _cells(self) -> list[list[str]]:
        return [
            [
                row.mode,
                f"{row.max_rel_error:.1e}",
                "yes" if row.bit_identical else "no",
                str(row.missing_gradients),
                f"{row.drift:.1e}",
                "yes" if row.holds else "no",
            ]
            for row in self.rows
        ]

    def __repr__(self) -> str:
        errors = [f"{row.mode}: {row.error}" for row in self.rows if row.error]
        return "\n".join([table(_HEADER, self._cells()), *errors])

    def _repr_html_(self) -> str:
        return html_table(_HEADER, self._cells())


def verify(
    model: torch.nn.Module, sample: Any, *, loss: Loss = None, exact: Optional[bool] = None, seed: int = 0
) -> Verification:
    """Runs one training step in each mode and compares all gradients with those of ordinary autograd.

    The model keeps its plan; its gradients are dropped.

    Arguments:
        model: a model with stacks, or one of `pareprop.models`.
        sample: the arguments of the model: a tensor, a tuple, or a dict. For `pareprop.models` also a batch size.
        loss: makes a loss of the output; else its own member `loss`, or the mean of its tensors.
        exact: whether streams are fixed-point numbers, and every mode must have the bits of stored training; else as
            the model has them.
    """
    described = describe(model, sample, loss)
    wide = any(parameter.dtype == torch.float64 for parameter in model.parameters())
    rows = _core.verify(
        described.network,
        batch=described.batch,
        precision="fp64" if wide else "fp32",
        exact=is_exact(model) if exact is None else exact,
        seed=seed,
    )
    return Verification(
        [
            Row(row.mode, row.max_rel_error, row.bit_identical, row.missing_gradients, row.drift, row.error, row.holds)
            for row in rows
        ]
    )
