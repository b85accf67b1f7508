"""Branches, copies and comparisons that the tests share."""

import copy
import io
import pickle

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


def by_autograd(stack, x1, x2, *extras, **named):
    """What a stack without dropout computes, written out. A branch gets the arguments that it takes."""
    for block in stack:
        wide = x1.dtype
        y1 = x1 + (block.f(x2, *extras, **named) if isinstance(block.f, Attention) else block.f(x2)).to(wide)
        x1, x2 = y1, x2 + (block.g(y1, *extras, **named) if isinstance(block.g, Attention) else block.g(y1)).to(wide)
    return x1, x2


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
