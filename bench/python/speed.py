"""How fast the package for Python is, in turns:  speed.py [--rounds 10]

- a network of ours called from Python, against the same step in C++;
- a stack of plain modules in modes reprop and pareprop, against the usual reversible autograd.Function in Python.

Each line has the median of the steps' times, and the median of the ratios of neighbours: above 1, ours is faster.
"""

import argparse
import statistics
import time

import pareprop

pareprop.memory.install()

import torch  # noqa: E402
from torch import nn  # noqa: E402


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


def mlp(width):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Reversible(torch.autograd.Function):
    """All blocks as one function that recovers their inputs: the way it is usually written in Python."""

    @staticmethod
    def forward(ctx, x1, x2, blocks, *parameters):
        ctx.blocks = blocks
        with torch.no_grad():
            for f, g in blocks:
                x1 = x1 + f(x2)
                x2 = x2 + g(x1)
        ctx.save_for_backward(x1.detach(), x2.detach())
        return x1, x2

    @staticmethod
    def backward(ctx, dy1, dy2):
        y1, y2 = ctx.saved_tensors
        for f, g in reversed(ctx.blocks):
            with torch.enable_grad():
                y1.requires_grad_(True)
                gy1 = g(y1)
                gy1.backward(dy2)
            with torch.no_grad():
                x2 = y2 - gy1
                dx1 = dy1 + y1.grad
                y1.grad = None
            with torch.enable_grad():
                x2.requires_grad_(True)
                fx2 = f(x2)
                fx2.backward(dx1)
            with torch.no_grad():
                x1 = y1 - fx2
                dx2 = dy2 + x2.grad
                x2.grad = None
            y1, y2, dy1, dy2 = x1.detach(), x2.detach(), dx1, dx2
        return dy1, dy2, None, *[None] * (len(ctx.needs_input_grad) - 3)


def in_turns(rounds, **ways):
    times = {name: [] for name in ways}
    for round in range(rounds + 2):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            if round >= 2:
                times[name].append(time.perf_counter() - begin)
    names = list(ways)
    for name in names:
        ratios = [other / own for other, own in zip(times[names[0]], times[name])]
        print(f"  {name:20} {statistics.median(times[name]) * 1e3:8.1f} ms   {statistics.median(ratios):.3f}", flush=True)


def gradients(parameters, step):
    for parameter in parameters:
        parameter.grad = None
    step()
    return [parameter.grad for parameter in parameters]


def close(found, expected):
    """Apart from rounding, by the norm of the difference."""
    return (found - expected).norm() <= 1e-4 * expected.norm() + 1e-9


def check_same(parameters, **ways):
    """Each way computes the gradients of the first."""
    expected = None
    for name, way in ways.items():
        found = gradients(parameters, way)
        assert all(gradient is not None for gradient in found), name
        if expected is None:
            expected = found
        for own, other in zip(found, expected):
            assert close(own, other), (name, own.shape)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    for mode in ("reprop", "pareprop"):
        model = pareprop.models.create("vit_small", mode=mode)
        images, labels, _ = model.example(4)
        print(f"vit_small, batch 4, fp32, {mode}")
        stored = pareprop.models.create("vit_small", mode="stored")
        stored.load_state_dict(model.state_dict())
        expected = gradients(list(stored.parameters()), lambda: stored.loss(images, labels).backward())
        found = gradients(list(model.parameters()), lambda: model.loss(images, labels).backward())
        assert all(map(close, found, expected)), mode
        # A step of the engine makes its batch, so the other way makes one too.
        ways = {
            "in_cpp": lambda: model.engine.step(4),
            "from_python": lambda: model.loss(*model.example(4)).backward(),
        }
        in_turns(rounds, **ways)

    width, depth = 384, 12
    pairs = [(Attention(width, 6), mlp(width)) for _ in range(depth)]
    stacks = {mode: pareprop.Stack(pairs, mode) for mode in ("reprop", "pareprop")}
    x = torch.randn(4, 197, width)
    parameters = list(stacks["reprop"].parameters())

    def vanilla():
        leaf = x.clone().requires_grad_()
        y1, y2 = Reversible.apply(leaf, leaf, pairs, *parameters)
        (y1 + y2).square().mean().backward()

    def ours(stack):
        leaf = x.clone().requires_grad_()
        y1, y2 = stack(leaf, leaf)
        (y1 + y2).square().mean().backward()

    print(f"{depth} blocks of plain modules, width {width}, (4, 197) tokens, fp32")
    ways = {"autograd_function": vanilla, **{mode: lambda mode=mode: ours(stacks[mode]) for mode in stacks}}
    check_same(parameters, **ways)
    in_turns(rounds, **ways)


if __name__ == "__main__":
    main()
