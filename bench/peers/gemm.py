"""What the machine's matrix products reach: large square ones, and those of a network's step."""

import time
from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class GemmRecorder(TorchDispatchMode):
    """Counts matrix products by shape: (batch, m, k, n), which factor is transposed in memory, dtype."""

    PRODUCTS = {torch.ops.aten.mm.default: 0, torch.ops.aten.bmm.default: 0,
                torch.ops.aten.addmm.default: 1, torch.ops.aten.baddbmm.default: 1}

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        first = self.PRODUCTS.get(function)
        if first is not None:
            a, b = args[first:first + 2]
            batch = a.size(0) if a.dim() == 3 else 1
            key = (batch, a.size(-2), a.size(-1), b.size(-1), a.stride(-1) != 1, b.stride(-1) != 1,
                   str(a.dtype).removeprefix("torch."))
            self.seen[key] += 1
        return function(*args, **(kwargs or {}))

    def rows(self):
        return [list(key) + [count] for key, count in self.seen.items()]


def best_seconds(product, least):
    product()
    best, begin = float("inf"), time.perf_counter()
    while True:
        start = time.perf_counter()
        product()
        now = time.perf_counter()
        best = min(best, now - start)
        if now - begin > least:
            return best


def operand(batch, rows, columns, transposed, dtype):
    shape = (batch, columns, rows) if transposed else (batch, rows, columns)
    value = torch.randn(shape).to(dtype)
    value = value.transpose(1, 2) if transposed else value
    return value.squeeze(0) if batch == 1 else value


def seconds_of(batch, m, k, n, a_transposed, b_transposed, dtype, least):
    dtype = getattr(torch, dtype)
    a = operand(batch, m, k, a_transposed, dtype)
    b = operand(batch, k, n, b_transposed, dtype)
    out = torch.empty((m, n) if batch == 1 else (batch, m, n), dtype=dtype)
    product = torch.mm if batch == 1 else torch.bmm
    return best_seconds(lambda: product(a, b, out=out), least)


def square_seconds(side, dtype, least):
    return seconds_of(1, side, side, side, False, False, dtype, least)


def affordable_side(side, dtype, least):
    """`side`, or less where a product would take much longer than `least` seconds: a CPU without bf16."""
    small = min(side, 256)
    while small < side and 8 * square_seconds(small, dtype, 0.0) <= least:
        small *= 2
    return min(small, side)


def peak(precision, gemms, side, least):
    """GFLOP/s of a square product and of all that a GemmRecorder has seen; `least` seconds for each part."""
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[precision]
    side = affordable_side(side, dtype, least)
    square = 2e-9 * side ** 3 / square_seconds(side, dtype, least)
    flops = seconds = 0.0
    for *shape, count in gemms:
        batch, m, k, n = shape[:4]
        flops += count * 2e-9 * batch * m * k * n
        seconds += count * seconds_of(*shape, least / len(gemms))
    return {"square_side": side, "square_gflops": square, "step_gflop": flops, "step_ms": 1e3 * seconds,
            "step_gflops": flops / seconds if seconds else None}
