"""Branches, copies and comparisons that the tests share."""

import copy
import io
import pickle
from contextlib import contextmanager

import torch
from torch import nn

import pareprop


class Mlp(nn.Module):
    def __init__(self, width, dropout=0.0, hidden=2):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden * width)
        self.down = nn.Linear(hidden * width, width)
        self.drop = pareprop.nn.Dropout(dropout)

    def forward(self, x):
        return self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))


class Attention(nn.Module):
    def __init__(self, width, heads=2, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = pareprop.nn.Dropout(dropout)

    def forward(self, x, mask=None, bias=None):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if bias is not None:
            scores = scores + bias
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e4)
        y = (self.drop(scores.softmax(-1)) @ v).transpose(1, 2).reshape(batch, tokens, width)
        return self.out(y)


def blocks(depth, width=8, dropout=0.0):
    return [(Attention(width, dropout=dropout), Mlp(width, dropout)) for _ in range(depth)]


def _called(branch, x, extras, named):
    """A branch in the type of its weights, where that is lower, with the arguments that it takes."""
    weights = list(branch.parameters()) if isinstance(branch, nn.Module) else []
    lower = weights[0].dtype if weights and weights[0].dtype == torch.bfloat16 else x.dtype
    takes = isinstance(branch, Attention)
    return (branch(x.to(lower), *extras, **named) if takes else branch(x.to(lower))).to(x.dtype)


def by_autograd(stack, x1, x2, *extras, **named):
    """What a stack computes, written out. Of dropout see Replay."""
    for block in stack:
        x1 = x1 + _called(block.f, x2, extras, named)
        x2 = x2 + _called(block.g, x1, extras, named)
    return x1, x2


class Replay:
    """The masks of pareprop.nn.Dropout, in the order of the forward pass."""

    def __init__(self):
        self.masks = []
        self._drop = pareprop.nn.Dropout.forward

    @contextmanager
    def _instead(self, forward):
        pareprop.nn.Dropout.forward = forward
        try:
            yield
        finally:
            pareprop.nn.Dropout.forward = self._drop

    def recorded(self):
        """Masks are drawn as ever, and noted."""

        def noting(module, x):
            y = self._drop(module, x)
            if module.training and module.p > 0:
                # A value that is zero before would hide what was dropped: none is, of continuous values.
                self.masks.append(torch.where(y == 0, 0.0, 1.0 / (1.0 - module.p)))
            return y

        return self._instead(noting)

    def again(self):
        """The noted masks, as ordinary products."""
        left = iter(self.masks)

        def multiplying(module, x):
            return x * next(left).to(x.dtype) if module.training and module.p > 0 else x

        return self._instead(multiplying)


def loss_of(y1, y2):
    return (y1.float() * 0.7 - y2.float() * 1.3).square().mean() if y1.dtype != torch.float64 else (
        y1 * 0.7 - y2 * 1.3
    ).square().mean()


def gradients(inputs, call):
    """Gradients of all inputs that require them, after one backward pass of `call()`."""
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    for tensor in wanted:
        tensor.grad = None
    loss_of(*call()).backward()
    return [tensor.grad for tensor in wanted]


def largest_error(found, expected):
    """As `pareprop verify`: of each tensor, relative to its largest value, or to 1e-4 of the largest of all."""
    assert [g is None for g in found] == [g is None for g in expected]
    pairs = [(f.double(), e.double()) for f, e in zip(found, expected) if e is not None]
    largest = max(e.abs().max().item() for _, e in pairs)
    return max((f - e).abs().max().item() / max(e.abs().max().item(), 1e-4 * largest) for f, e in pairs)


def copied(module, how):
    """A copy of a module: "deepcopy", "pickle", or by "torch.save"."""
    if how == "deepcopy":
        return copy.deepcopy(module)
    if how == "pickle":
        return pickle.loads(pickle.dumps(module))
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)
