"""What the networks share: layers, the two forms of attention, and three ways to run a stack."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Linear(nn.Linear):
    """Without the initial values that nn.Linear draws: they are loaded."""

    def reset_parameters(self):
        pass


def linear_like(state, name):
    out, inner = state[f"{name}.weight"].shape
    return Linear(inner, out, bias=f"{name}.bias" in state)


def norm_like(state, name, eps):
    return nn.LayerNorm(state[f"{name}.weight"].numel(), eps)


def empty_like(state, name):
    return nn.Parameter(torch.empty_like(state[name]))


def one_stream(state):
    """Whether the norm behind the last block is as wide as the block: an ordinary network."""
    of_blocks = [value for name, value in state.items() if name.endswith(".g.norm.weight")]
    return state["norm.weight"].numel() == max(value.numel() for value in of_blocks)


def count(state, prefix):
    """How many modules `prefix`.0, `prefix`.1, ... there are."""
    names = {name[len(prefix) + 1:].split(".")[0] for name in state if name.startswith(prefix + ".")}
    return len(names)


def sdpa(q, k, v, bias=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def matmul(q, k, v, bias=None):
    scores = (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    return scores.softmax(-1) @ v


ATTENTION = {"sdpa": sdpa, "matmul": matmul}


class SelfAttention(nn.Module):
    """F of ViT and RoBERTa."""

    def __init__(self, state, name, heads, eps, attention):
        super().__init__()
        self.norm = norm_like(state, f"{name}.norm", eps)
        self.qkv = linear_like(state, f"{name}.qkv")
        self.proj = linear_like(state, f"{name}.proj")
        self.heads, self.attention = heads, ATTENTION[attention]

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = self.attention(*qkv.unbind(0))
        return self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Mlp(nn.Module):
    """G."""

    def __init__(self, state, name, eps):
        super().__init__()
        self.norm = norm_like(state, f"{name}.norm", eps)
        self.fc1 = linear_like(state, f"{name}.fc1")
        self.fc2 = linear_like(state, f"{name}.fc2")

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(self.norm(x))))


class Block(nn.Module):
    def __init__(self, f, g):
        super().__init__()
        self.f, self.g = f, g

    def forward(self, x1, x2):
        y1 = x1 + self.f(x2)
        return y1, x2 + self.g(y1)


class Reversible(torch.autograd.Function):
    """Vanilla reversible: the forward pass keeps the outputs only, the backward pass recovers the
    inputs block by block and runs autograd on each branch, which puts gradients into parameters."""

    @staticmethod
    def forward(ctx, x, blocks):
        ctx.blocks = blocks
        ctx.autocast = dict(device_type="cpu", dtype=torch.get_autocast_dtype("cpu"),
                            enabled=torch.is_autocast_enabled("cpu"))
        y1 = y2 = x
        for block in blocks:
            y1, y2 = block(y1, y2)
        ctx.save_for_backward(y1, y2)
        return y1, y2

    @staticmethod
    def backward(ctx, d1, d2):
        y1, y2 = ctx.saved_tensors
        with torch.autocast(**ctx.autocast):
            for block in reversed(ctx.blocks):
                y2, d1 = Reversible.undo(block.g, y1, y2, d1, d2)
                y1, d2 = Reversible.undo(block.f, y2, y1, d2, d1)
        return d1 + d2, None

    @staticmethod
    def undo(branch, inner, outer, d_inner, d_outer):
        """Of outer = before + branch(inner): before, and the gradient of inner."""
        inner = inner.detach().requires_grad_()
        with torch.enable_grad():
            result = branch(inner)
        before = outer - result.detach()
        torch.autograd.backward(result, d_outer.to(result.dtype))
        return before, d_inner + inner.grad


class PlainBlock(Block):
    def forward(self, x):
        h = x + self.f(x)
        return h + self.g(h)


class Stack(nn.ModuleList):
    """Blocks whose streams both start as x; returns both. Of ordinary blocks there is one."""

    strategy = "stored"

    def forward(self, x):
        x = x.float()  # streams are float32 under autocast too
        if len(self) > 0 and isinstance(self[0], PlainBlock):
            return self.run_plain(x)
        if self.strategy == "reversible":
            return Reversible.apply(x, list(self))
        x1 = x2 = x
        for block in self:
            if self.strategy == "checkpoint":
                x1, x2 = checkpoint(block, x1, x2, use_reentrant=False)
            else:
                x1, x2 = block(x1, x2)
        return x1, x2

    def run_plain(self, x):
        for block in self:
            x = checkpoint(block, x, use_reentrant=False) if self.strategy == "checkpoint" else block(x)
        return (x,)


class Network(nn.Module):
    strategy = "stored"

    def set_strategy(self, strategy):
        self.strategy = strategy
        for module in self.modules():
            if isinstance(module, Stack):
                module.strategy = strategy

    def between(self, module, x):
        """Runs a part between two stacks, which is not reversible."""
        if self.strategy == "checkpoint":
            return checkpoint(module, x, use_reentrant=False)
        return module(x)

    def prepare(self, batch):
        """What forward() is given, and the targets of its rows."""
        return (batch["input"],), batch["target"]

    def loss(self, inputs, targets):
        return F.cross_entropy(self(*inputs).float(), targets)


def patches(images, patch):
    """Squares of the image as rows: (batch, squares, channels * patch * patch)."""
    batch, channels, size, _ = images.shape
    side = size // patch
    squares = images.view(batch, channels, side, patch, side, patch).permute(0, 2, 4, 1, 3, 5)
    return squares.reshape(batch, side * side, channels * patch * patch)
