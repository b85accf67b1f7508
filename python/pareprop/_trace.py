"""One training step in detail: what ran when, and memory over time."""

from __future__ import annotations

import json
import os
from typing import Any, Union

import torch

from . import _core
from ._network import describe
from ._step import Loss


class Trace:
    """A recorded training step. A notebook shows it as a picture."""

    def __init__(self, svg: str, chrome: str) -> None:
        self.svg = svg
        self._chrome = chrome

    def to_json(self) -> dict[str, Any]:
        """The step for Perfetto or chrome://tracing."""
        result: dict[str, Any] = json.loads(self._chrome)
        return result

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the picture to a file that ends with .svg, else JSON for Perfetto."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg if os.fspath(path).endswith(".svg") else self._chrome)

    def _repr_html_(self) -> str:
        return self.svg


def trace(model: torch.nn.Module, sample: Any, *, loss: Loss = None, title: str = "training step") -> Trace:
    """Records one training step of a model with stacks, or of one of `pareprop.models`, as it is planned now.

    A step before it warms up. Gradients are added to those of the parameters, as by any step. Memory is shown if
    `pareprop.memory.install()` was called.
    """
    described = describe(model, sample, loss)
    described.network.step(described.batch)
    return Trace(*_core.record_step(described.network, samples=described.batch, title=title))
