"""Mistakes: each has a sentence that names the branch, and the stack works afterwards."""

import threading
import traceback

import pytest
import torch
from torch import nn

import pareprop
from branches import Mlp, blocks, by_autograd, gradients, largest_error, loss_of


def step(stack, x):
    loss_of(*stack(x, x)).backward()


@pytest.fixture
def x():
    return torch.randn(2, 5, 8)


@pytest.mark.parametrize(
    "branch, error, message",
    [
        (lambda x: x[:, :2], ValueError, "block 1, branch F: the branch returned .*expected the shape"),
        (lambda x: None, TypeError, "block 1, branch F: the branch returned an object of type 'NoneType'"),
        (lambda x: (x, x), TypeError, "type 'tuple'; expected one tensor"),
        (lambda x: x.long(), ValueError, "expected the shape and device of its input"),
        (nn.BatchNorm1d(5), RuntimeError, "changes a buffer of its module"),
        (nn.Dropout(0.5), RuntimeError, r"block 1, branch F.*pareprop\.nn\.Dropout"),
    ],
)
def test_branches_that_cannot_be_computed_again(x, branch, error, message):
    stack = pareprop.Stack([(Mlp(8), Mlp(8)), (branch, Mlp(8)), (Mlp(8), Mlp(8))], "reprop")
    with pytest.raises(error, match=message):
        step(stack, x)


class WrongOnce(nn.Module):
    """Only its first call is wrong."""

    def __init__(self, wrong):
        super().__init__()
        self.linear, self.wrong = nn.Linear(8, 8), wrong

    def forward(self, x):
        wrong, self.wrong = self.wrong, None
        return wrong(x) if wrong else self.linear(x)


@pytest.mark.parametrize("mode", ["reprop", "pareprop"])
@pytest.mark.parametrize(
    "wrong, error",
    [
        (lambda x: x[:, :2], ValueError),
        (lambda x: None, TypeError),
        (lambda x: x + 1, RuntimeError),  # it keeps state
        (lambda x: nn.functional.dropout(x, 0.5), RuntimeError),
    ],
)
def test_the_stack_works_again_after_a_wrong_branch(x, mode, wrong, error):
    pairs = [(Mlp(8), Mlp(8)), (WrongOnce(wrong), Mlp(8)), (Mlp(8), Mlp(8))]
    plan = pareprop.StackPlan(["reverse"] * 3, overlap=mode == "pareprop", tail=0)
    stack = pareprop.Stack(pairs, plan=plan)
    with pytest.raises(error, match="block 1, branch F"):
        step(stack, x)
    parameters = list(stack.parameters())
    found = gradients(parameters, lambda: stack(x, x))
    assert largest_error(found, gradients(parameters, lambda: by_autograd(stack, x, x))) < 1e-5


def test_a_branch_that_keeps_state(x):
    calls = []

    def counts(x):
        calls.append(1)
        return x * len(calls)

    with pytest.raises(RuntimeError, match="block 0, branch G: the recomputation differs"):
        step(pareprop.Stack([(Mlp(8), counts)], plan=pareprop.StackPlan(["reverse"], tail=0)), x)


def test_a_leaf_that_is_not_a_parameter(x):
    weight = torch.randn(8, requires_grad=True)
    with pytest.raises(RuntimeError, match="its gradient would be lost"):
        step(pareprop.Stack([(lambda x: x * weight, Mlp(8))], "reprop"), x)


def test_a_parameter_without_gradient(x):
    class Idle(Mlp):
        def __init__(self):
            super().__init__(8)
            self.idle = nn.Linear(2, 2)

    with pytest.raises(RuntimeError, match="parameter 'idle.weight' got no gradient"):
        step(pareprop.Stack([(Idle(), Mlp(8))]), x)
    step(pareprop.Stack([(Idle(), Mlp(8))], allow_unused_parameters=True), x)


class Fails(nn.Module):
    """Raises in one of its calls."""

    class Error(Exception):
        pass

    def __init__(self, at):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.left = at

    def forward(self, x):
        self.left -= 1
        if self.left == 0:
            raise Fails.Error("the reason")
        return self.linear(x)


@pytest.mark.parametrize("mode", ["stored", "checkpoint", "reprop", "pareprop"])
@pytest.mark.parametrize("at", [1, 2])
def test_exceptions_arrive_with_their_traceback_and_the_stack_works_again(x, mode, at):
    """From a forward pass, and from recomputations, which run on either lane."""
    for place in range(6):
        pairs = [[Mlp(8), Mlp(8)] for _ in range(3)]
        branch = Fails(at)
        pairs[place // 2][place % 2] = branch
        policies = pareprop.StackPlan.of_mode(mode, 3).policies
        stack = pareprop.Stack(pairs, plan=pareprop.StackPlan(policies, overlap=mode == "pareprop", tail=0))
        if at == 2 and mode == "stored":
            step(stack, x)
            continue
        with pytest.raises(Fails.Error, match="the reason") as caught:
            step(stack, x)
        assert any(frame.name == "forward" and frame.filename == __file__ for frame in traceback.extract_tb(caught.tb))
        stack.zero_grad()
        step(stack, x)
        assert all(parameter.grad is not None for parameter in stack.parameters())


def test_exceptions_of_gradients_and_callbacks_arrive(x):
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise Fails.Error("in a gradient")

    stack = pareprop.Stack([(Mlp(8), Mlp(8)), (Bad.apply, Mlp(8)), (Mlp(8), Mlp(8))], "pareprop")
    with pytest.raises(Fails.Error, match="in a gradient"):
        step(stack, x)
    stack = pareprop.Stack(blocks(3))

    def on_block(block, parameters, gradients):
        raise Fails.Error("in a callback")

    with stack.on_block_gradients(on_block), pytest.raises(Fails.Error, match="in a callback"):
        step(stack, x)
    step(stack, x)


def test_changes_between_forward_and_backward(x):
    stack = pareprop.Stack(blocks(2), "reprop")
    loss = loss_of(*stack(x, x))
    with torch.no_grad():
        stack[0].f.qkv.weight.add_(1)
    with pytest.raises(RuntimeError, match="block 0, branch F: parameter 'qkv.weight' was changed in place"):
        loss.backward()
    loss = loss_of(*stack(x, x))
    loss.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()


def test_arguments_of_a_stack(x):
    with pytest.raises(TypeError, match="block 1 is of type 'Mlp'; expected a pair"):
        pareprop.Stack([(Mlp(8), Mlp(8)), Mlp(8)])
    with pytest.raises(TypeError, match="a branch is a module or a function, got 3"):
        pareprop.Stack([(Mlp(8), 3)])
    with pytest.raises(ValueError, match="pareprop.*'fast'|'fast'"):
        pareprop.Stack(blocks(2), "fast")
    with pytest.raises(ValueError, match="one of mode, policies and plan"):
        pareprop.Stack(blocks(2), "reprop", policies="RR")
    with pytest.raises(ValueError):
        pareprop.Stack(blocks(2), policies="RRR")
    stack = pareprop.Stack(blocks(2))
    with pytest.raises(ValueError):
        stack.plan = pareprop.StackPlan(["store"])
    with pytest.raises(ValueError, match="two streams of the same shape"):
        stack(x, x[:1])
    with pytest.raises(TypeError, match="x1 is a tensor of torch.int64"):
        stack(x.long(), x)
    with pytest.raises(TypeError, match="extra argument 0 is 3; expected a tensor or None"):
        stack(x, x, 3)
    with pytest.raises(TypeError, match="no branch takes the argument 'msk'"):
        stack(x, x, msk=x)
    with pytest.raises(TypeError, match="3 extra arguments were given"):
        stack(x, x, x, x, x)
    with pytest.raises(RuntimeError, match="call eval"):
        pareprop.Stack(blocks(2, dropout=0.1)).inverse(x, x)
    with pytest.raises(TypeError, match="y2 is None"):
        stack.inverse(x, None)
    with pytest.raises(ValueError, match="p is 1.5"):
        pareprop.nn.Dropout(1.5)
    step(stack, x)


class FailsOn(Mlp):
    """Raises in one recomputation, on one lane."""

    armed = False

    def __init__(self, lane):
        super().__init__(8)
        self.lane = lane

    def forward(self, x):
        here = "own" if threading.current_thread() is threading.main_thread() else "other"
        if FailsOn.armed and here == self.lane:
            FailsOn.armed = False
            raise ArithmeticError("the reason")
        return super().forward(x)


@pytest.mark.parametrize("lane", ["own", "other"])
def test_an_exception_arrives_from_either_lane(lane):
    """Which lane recovers a branch is chance: steps are repeated until this one does."""
    stack = pareprop.Stack([(FailsOn(lane), FailsOn(lane)) for _ in range(8)], "pareprop")
    x, caught = torch.randn(4, 64, 8), None
    for _ in range(1000):
        loss = loss_of(*stack(x, x))
        FailsOn.armed = True
        try:
            loss.backward()
        except ArithmeticError as error:
            caught = error
            break
        finally:
            FailsOn.armed = False
    assert caught is not None, f"nothing was recovered on the {lane} lane"
    frames = traceback.extract_tb(caught.__traceback__)
    assert any(frame.name == "forward" and frame.filename == __file__ for frame in frames)
    stack.zero_grad()
    step(stack, x)
    assert all(parameter.grad is not None for parameter in stack.parameters())
