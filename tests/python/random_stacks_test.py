"""Random stacks against plain autograd: depths, dropout, masks, shared and frozen parameters, modes and types."""

import random

import pytest
import torch
from torch import nn

import pareprop
from branches import Attention, Mlp, by_autograd, gradients, largest_error
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
        depth = dice.randint(1, 7)
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
            return {"mode": self.dice.choice(["stored", "checkpoint", "reprop", "pareprop"])}
        policies = [self.dice.choice(POLICIES) for _ in range(depth)]
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

    def gradients(self, call):
        torch.manual_seed(11)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.kind == "bf16"):
            if not any(tensor.requires_grad for tensor in self.inputs):
                return []
            return gradients(self.inputs, lambda: call(self.x1, self.x2, *self.extras))


@pytest.mark.parametrize("part", range(5))
def test_random_stacks(part):
    count = cases(100)
    for seed in range(part * count, (part + 1) * count):
        case = Case(seed)
        found = case.gradients(case.stack)
        if case.exact:
            plan = case.stack.plan
            case.stack.set_mode("stored")
            expected = case.gradients(case.stack)
            same = [(f is None and e is None) or torch.equal(f, e) for f, e in zip(found, expected)]
            assert all(same), (seed, plan, same)
        elif found:
            plain = case.dropout == 0.0 and case.kind in ("fp32", "fp64")
            expected = case.gradients(
                (lambda *x: by_autograd(case.stack, *x)) if plain else case.stack.reference  # noqa: B023
            )
            error = largest_error(found, expected)
            assert error < TOLERANCE[case.kind], (seed, case.kind, error, case.stack.plan)
