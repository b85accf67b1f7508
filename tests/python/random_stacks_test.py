"""Random stacks against plain autograd: depths, dropout, masks, shared and frozen parameters, modes and types."""

import random

import pytest
import torch
from torch import nn

import pareprop
from branches import Attention, Mlp, Replay, by_autograd, gradients, largest_error
from conftest import cases

POLICIES = ["store", "products", "checkpoint", "anchor", "reverse"]
TOLERANCE = {"fp64": 1e-10, "fp32": 1e-5, "bf16": 2e-2, "bf16 weights": 2e-2}


class Case:
    def __init__(self, seed):
        self.dice = dice = random.Random(seed)
        torch.manual_seed(seed)
        self.kind = dice.choice(["fp32", "fp32", "fp64", "bf16", "bf16 weights"])
        self.width = dice.choice([4, 8, 12])
        self.dropout = dice.choice([0.0, 0.0, 0.2])
        self.exact = dice.random() < 0.25
        depth = dice.randint(2 if self.exact else 1, 7)
        pairs = []
        for _ in range(depth):
            if pairs and dice.random() < 0.15:
                pairs.append((dice.choice(pairs)[0], self.branch()))  # shared
            else:
                pairs.append((self.branch(), self.branch()))
        self.stack = pareprop.Stack(pairs, **self.plan(depth), exact=self.exact)
        for parameter in self.stack.parameters():
            with torch.no_grad():
                parameter.mul_(0.7)
            if dice.random() < 0.1:
                parameter.requires_grad_(False)
        self.stack.to({"fp64": torch.float64, "bf16 weights": torch.bfloat16}.get(self.kind, torch.float32))
        if dice.random() < 0.2:
            self.stack.eval()
        tokens, batch = dice.randint(1, 6), dice.randint(1, 3)
        dtype = torch.float64 if self.kind == "fp64" else torch.float32
        self.x1 = torch.randn(batch, tokens, self.width, dtype=dtype, requires_grad=dice.random() < 0.7)
        same = dice.random() < 0.4
        self.x2 = self.x1 if same else torch.randn(batch, tokens, self.width, dtype=dtype, requires_grad=True)
        mask = torch.ones(tokens, tokens, dtype=torch.bool).tril() if dice.random() < 0.5 else None
        bias = torch.randn(tokens, tokens, dtype=dtype, requires_grad=True) if dice.random() < 0.5 else None
        if self.kind == "bf16 weights" and bias is not None:
            bias = bias.detach().bfloat16().requires_grad_()
        takes = any(isinstance(branch, Attention) for pair in pairs for branch in pair)
        self.extras = (mask, bias) if takes else ()
        self.inputs = [self.x1, *([] if same else [self.x2]), *self.stack.parameters()]
        if takes and bias is not None:
            self.inputs.append(bias)
        if dice.random() < 0.03:
            for tensor in self.inputs:
                tensor.requires_grad_(False)

    def branch(self):
        kind = self.dice.choice([Attention, Mlp, Mlp, nn.Linear, "function"])
        if kind is Attention:
            return Attention(self.width, dropout=self.dropout)
        if kind is Mlp:
            return Mlp(self.width, self.dropout)
        return torch.sin if kind == "function" else nn.Linear(self.width, self.width)

    def plan(self, depth):
        way = self.dice.choice(["mode", "mode", "policies", "plan"])
        if way == "mode":
            # Exact streams are compared with stored ones, so something must be recomputed.
            modes = ["checkpoint", "reprop", "pareprop"]
            return {"mode": self.dice.choice(modes if self.exact else ["stored", *modes])}
        policies = [self.dice.choice(POLICIES) for _ in range(depth)]
        if self.exact and set(policies) <= {"store"}:
            policies[0] = "reverse"
        if way == "policies":
            return {"policies": policies}
        overlap = self.dice.random() < 0.7
        return {
            "plan": pareprop.StackPlan(
                policies,
                overlap=overlap,
                lookahead=self.dice.choice([None, 1, 2, 4]),
                deferred=self.dice.randint(0, 3),
                lanes=self.dice.choice([2, 3]),
                tail=self.dice.choice([None, 0, 1]),
            )
        }

    def any_gradient(self):
        return any(tensor.requires_grad for tensor in self.inputs)

    def run(self, call):
        """The outputs of the call, and the gradients of the inputs that require them."""
        torch.manual_seed(11)
        outputs = []

        def kept(*x):
            outputs[:] = call(*x)
            return outputs

        with torch.autocast("cpu", torch.bfloat16, enabled=self.kind == "bf16"):
            if not self.any_gradient():
                return kept(self.x1, self.x2, *self.extras), []
            found = gradients(self.inputs, lambda: kept(self.x1, self.x2, *self.extras))
        return outputs, found

    def plain(self):
        """Outputs and gradients of plain autograd, with the masks that the stack draws."""
        replay = Replay()
        with replay.recorded():
            self.run(self.stored if self.exact else self.stack.reference)
        with replay.again():
            return self.run(lambda *x: by_autograd(self.stack, *x))

    def stored(self, *x):
        plan = self.stack.plan
        self.stack.set_mode("stored")
        try:
            return self.stack(*x)
        finally:
            self.stack.plan = plan


def check(seed):
    print(f"seed {seed}")
    case = Case(seed)
    where = (seed, case.kind, case.stack.plan)
    outputs, found = case.run(case.stack)
    expected_outputs, expected = case.plain()
    tolerance = TOLERANCE[case.kind]
    for y, e in zip(outputs, expected_outputs):
        # The outputs of a stack are those of one node; of plain autograd each is of what it depends on.
        assert y.requires_grad == case.any_gradient() and (y.requires_grad or not e.requires_grad), where
        assert (y - e).abs().max() <= tolerance * e.abs().max(), where
    if not case.any_gradient():
        return "nothing to differentiate"
    assert len(found) > 0 and all(gradient is not None for gradient in found), where
    error = largest_error(found, expected)
    assert error < tolerance, (*where, error)
    if case.exact:
        policies = set(case.stack.plan.policies)
        assert policies != {"store"}, where
        _, stored = case.run(case.stored)
        assert all(map(torch.equal, found, stored)), where
        return "exact"
    return "floating"


@pytest.mark.parametrize("part", range(5))
def test_random_stacks(part):
    """PAREPROP_PYTHON_CASES=10 runs ten times as many. A failure prints its seed, and check(seed) runs it again."""
    count = cases(100)
    seen = [check(seed) for seed in range(part * count, (part + 1) * count)]
    assert set(seen) == {"nothing to differentiate", "exact", "floating"} or count < 100
