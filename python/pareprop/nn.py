"""Layers for the branches of a stack: dropout that is drawn again in the recomputation."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _core

__all__ = ["DropPath", "Dropout", "replace_dropout"]


class RandomLayer(torch.nn.Module):
    """What dropout layers share."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"{type(self).__name__}: p is {p}; expected 0 or more and less than 1")
        self.p = p

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Dropout(RandomLayer):
    """`torch.nn.Dropout` that draws the same mask again when a stack computes the branch again.

    Outside of a stack it is ordinary dropout.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if not _core.in_branch():
            return torch.nn.functional.dropout(x, self.p)
        return _core.dropout(x, self.p)


class DropPath(RandomLayer):
    """Drops whole samples along dimension 0 (stochastic depth), the same again in a recomputation."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if not _core.in_branch():
            ones = x.new_ones([x.shape[0]] + [1] * (x.dim() - 1))
            return x * torch.nn.functional.dropout(ones, self.p)
        return _core.drop_path(x, self.p)


def replace_dropout(module: torch.nn.Module) -> torch.nn.Module:
    """Replaces every `torch.nn.Dropout` inside of a module by `pareprop.nn.Dropout`, and every module called DropPath
    that has a `drop_prob` (as in timm) by `pareprop.nn.DropPath`. Returns the module, or what replaces it.

    Calls of `torch.nn.functional.dropout` cannot be replaced; the drift probe finds them.
    """
    replacement: torch.nn.Module
    if isinstance(module, torch.nn.Dropout):
        replacement = Dropout(module.p).train(module.training)
        return replacement
    if type(module).__name__ == "DropPath" and hasattr(module, "drop_prob"):
        replacement = DropPath(float(module.drop_prob or 0.0)).train(module.training)  # type: ignore[arg-type]
        return replacement
    for name, child in list(module.named_children()):
        module._modules[name] = replace_dropout(child)
    return module
