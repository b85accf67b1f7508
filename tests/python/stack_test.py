"""Stacks against plain autograd, and what else a stack can do."""

import pytest
import torch
from torch import nn

import pareprop
from branches import Attention, Mlp, blocks, by_autograd, gradients, largest_error, loss_of

MODES = ["stored", "checkpoint", "reprop", "pareprop"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_gradients_are_those_of_plain_autograd(mode, depth):
    stack = pareprop.Stack(blocks(depth), mode)
    x1, x2 = torch.randn(2, 2, 5, 8).requires_grad_().unbind()
    x1, x2 = (x.detach().requires_grad_() for x in (x1, x2))
    inputs = [x1, x2, *stack.parameters()]
    expected = gradients(inputs, lambda: by_autograd(stack, x1, x2))
    assert largest_error(gradients(inputs, lambda: stack(x1, x2)), expected) < 1e-5


def test_policies_and_plans_choose_what_is_kept():
    stack = pareprop.Stack(blocks(5), policies="SPCAR")
    assert stack.plan.policies == ["store", "products", "checkpoint", "anchor", "reverse"]
    x = torch.randn(2, 5, 8)
    inputs = list(stack.parameters())
    expected = gradients(inputs, lambda: by_autograd(stack, x, x))
    assert largest_error(gradients(inputs, lambda: stack(x, x)), expected) < 1e-5
    stack.plan = pareprop.StackPlan(["reverse"] * 5, overlap=True, lookahead=3, deferred=0)
    assert largest_error(gradients(inputs, lambda: stack(x, x)), expected) < 1e-5
    assert pareprop.Stack(blocks(2), plan=pareprop.StackPlan(["store", "reverse"])).plan.policies[0] == "store"


def test_extra_arguments_go_to_the_branches_that_take_them_and_get_gradients():
    stack = pareprop.Stack(blocks(3))
    x = torch.randn(2, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    bias = torch.randn(5, 5, requires_grad=True)
    inputs = [bias, *stack.parameters()]
    expected = gradients(inputs, lambda: by_autograd(stack, x, x, mask, bias))
    assert largest_error(gradients(inputs, lambda: stack(x, x, mask, bias)), expected) < 1e-5
    assert largest_error(gradients(inputs, lambda: stack(x, x, bias=bias, mask=mask)), expected) < 1e-5
    alone = gradients(inputs[1:], lambda: by_autograd(stack, x, x, mask, None))
    assert largest_error(gradients(inputs[1:], lambda: stack(x, x, mask, None)), alone) < 1e-5


def test_functions_are_branches_too():
    stack = pareprop.Stack([(torch.tanh, nn.Linear(4, 4)), (nn.Linear(4, 4), lambda x: x.sin())])
    assert sorted(name for name, _ in stack.named_parameters()) == ["0.g.bias", "0.g.weight", "1.f.bias", "1.f.weight"]
    x = torch.randn(3, 4)
    inputs = list(stack.parameters())
    expected = gradients(inputs, lambda: by_autograd(stack, x, x))
    assert largest_error(gradients(inputs, lambda: stack(x, x)), expected) < 1e-5


@pytest.mark.parametrize("mode", MODES)
def test_dropout_is_drawn_again(mode):
    stack = pareprop.Stack(blocks(4, dropout=0.3), mode)
    x = torch.randn(2, 5, 8)
    inputs = list(stack.parameters())
    torch.manual_seed(7)
    expected = gradients(inputs, lambda: stack.reference(x, x))
    torch.manual_seed(7)
    assert largest_error(gradients(inputs, lambda: stack(x, x)), expected) < 1e-5
    other = gradients(inputs, lambda: stack(x, x))
    assert largest_error(other, expected) > 1e-2  # another call draws other masks
    stack.eval()
    assert torch.equal(stack(x, x)[0], stack(x, x)[0])


def test_exact_streams_have_the_bits_of_stored_training():
    stack = pareprop.Stack(blocks(4, dropout=0.1), "stored", exact=True)
    x = torch.randn(2, 5, 8)
    inputs = list(stack.parameters())
    torch.manual_seed(3)
    expected = gradients(inputs, lambda: stack(x, x))
    for mode in MODES[1:]:
        stack.set_mode(mode)
        torch.manual_seed(3)
        assert all(map(torch.equal, gradients(inputs, lambda: stack(x, x)), expected)), mode
        assert stack.drift.worst == 0.0


def test_drift_is_reported():
    stack = pareprop.Stack(blocks(6), "reprop")
    x = torch.randn(2, 5, 8)
    assert stack.drift == (0.0, None, None)
    loss_of(*stack(x, x)).backward()
    drift = stack.drift
    assert 0.0 < drift.worst < 1e-5 and drift.branch.startswith("block ") and 0.0 <= drift.at_bottom < 1e-4


def test_blocks_are_told_of_as_soon_as_their_gradients_are_final():
    stack = pareprop.Stack(blocks(3))
    x = torch.randn(2, 5, 8)
    seen = []

    def on_block(block, parameters, grads):
        seen.append((block, len(parameters)))
        for gradient in grads:
            gradient.mul_(2)

    plain = gradients(list(stack.parameters()), lambda: stack(x, x))
    with stack.on_block_gradients(on_block):
        doubled = gradients(list(stack.parameters()), lambda: stack(x, x))
    assert seen == [(2, 12), (1, 12), (0, 12)]
    for once, twice in zip(plain, doubled):
        torch.testing.assert_close(once * 2, twice)
    gradients(list(stack.parameters()), lambda: stack(x, x))
    assert len(seen) == 3


def test_a_watch_sees_the_tasks():
    stack = pareprop.Stack(blocks(4), "pareprop")
    x = torch.randn(2, 5, 8)
    seen = []
    handle = stack.watch(seen.append)
    loss_of(*stack(x, x)).backward()
    (tasks,) = seen
    assert {task.kind for task in tasks} >= {"recover", "gradient"}
    assert sum(task.kind == "gradient" for task in tasks) == 8
    assert all(task.end >= task.begin and task.branch in "FG" for task in tasks)
    handle.remove()
    loss_of(*stack(x, x)).backward()
    assert len(seen) == 1


def test_calls_of_an_engine_that_was_replaced_are_watched():
    stack, x, mask = pareprop.Stack(blocks(2)), torch.randn(2, 5, 8), torch.ones(5, 5, dtype=torch.bool)
    told, seen = [], []
    stack.on_block_gradients(lambda block, parameters, grads: told.append(block))
    stack.watch(lambda tasks: seen.append(len(tasks)))
    first, second = stack(x, x, mask=mask), stack(x, x)
    (loss_of(*first) + loss_of(*second)).backward()
    assert told == [1, 0, 1, 0] and len(seen) == 2
    open_call = stack(x, x)
    stack.set_mode("reprop")
    stack(x, x)
    loss_of(*open_call).backward()
    assert len(told) == 6 and len(seen) == 3


def test_replaced_dropout_is_drawn_again():
    layer = pareprop.nn.replace_dropout(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.4), nn.Sequential(nn.Dropout(0.2))))
    assert [type(part).__name__ for part in layer.modules()].count("Dropout") == 2
    stack = pareprop.Stack([(layer, nn.Linear(8, 8))], "reprop")
    loss_of(*stack(torch.randn(4, 8), torch.randn(4, 8))).backward()
    assert isinstance(pareprop.nn.replace_dropout(nn.Dropout(0.1)), pareprop.nn.Dropout)


def test_drop_path_drops_samples():
    drop = pareprop.nn.DropPath(0.5)
    x = torch.ones(64, 3)
    for y in (drop(x), pareprop.Stack([(drop, torch.zeros_like)])(torch.zeros(64, 3), x)[0]):
        assert set(y.unique().tolist()) == {0.0, 2.0}
        assert all(len(row.unique()) == 1 for row in y)


def test_ordinary_types_come_back():
    stack = pareprop.Stack(blocks(2)).bfloat16()
    x = torch.randn(2, 5, 8, dtype=torch.bfloat16, requires_grad=True)
    y1, y2 = stack(x, x)
    assert y1.dtype == y2.dtype == torch.bfloat16
    loss_of(y1, y2).backward()
    assert x.grad.dtype == torch.bfloat16 and stack[0].g.up.weight.grad.dtype == torch.bfloat16


def test_an_empty_stack_returns_its_inputs():
    x = torch.randn(2, 3)
    assert all(torch.equal(y, x) for y in pareprop.Stack([])(x, x))


def test_a_shared_branch_has_one_name():
    mlp = Mlp(8)
    stack = pareprop.Stack([(Attention(8), mlp), (Attention(8), mlp)])
    assert len(list(stack.parameters())) == 12 + 6
