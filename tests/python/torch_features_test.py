"""What users of torch expect of an nn.Module."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pareprop
from branches import Attention, Mlp, blocks, by_autograd, copied, gradients, largest_error, loss_of


@pytest.fixture
def x():
    return torch.randn(2, 5, 8)


def same_gradients(stack, x, call=None):
    inputs = [p for p in stack.parameters() if p.requires_grad]
    expected = gradients(inputs, lambda: by_autograd(stack, x, x))
    return largest_error(gradients(inputs, call or (lambda: stack(x, x))), expected) < 1e-5


def test_state_dict(x):
    stack, other = pareprop.Stack(blocks(2)), pareprop.Stack(blocks(2), "reprop")
    state = stack.state_dict()
    assert "0.f.qkv.weight" in state and "1.g.down.bias" in state
    other.load_state_dict(state)
    torch.testing.assert_close(other(x, x), stack(x, x))
    del state["0.f.qkv.weight"]
    state["more"] = torch.zeros(1)
    keys = other.load_state_dict(state, strict=False)
    assert keys.missing_keys == ["0.f.qkv.weight"] and keys.unexpected_keys == ["more"]
    other.load_state_dict(stack.state_dict(), assign=True)
    assert same_gradients(other, x)


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies(x, how):
    stack = pareprop.Stack(blocks(2, dropout=0.1), policies="RS", exact=True)
    stack.on_block_gradients(lambda *block: None)
    loss_of(*stack(x, x)).backward()
    twin = copied(stack, how)
    assert twin.plan == stack.plan and twin.exact
    assert twin[0].f.qkv.weight is not stack[0].f.qkv.weight
    torch.manual_seed(5)
    expected = gradients(list(stack.parameters()), lambda: stack(x, x))
    torch.manual_seed(5)
    assert all(map(torch.equal, gradients(list(twin.parameters()), lambda: twin(x, x)), expected))


def test_to_another_type(x):
    stack = pareprop.Stack(blocks(2))
    loss_of(*stack(x, x)).backward()
    stack.to(torch.float64)
    y1, _ = stack(x.double(), x.double())
    assert y1.dtype == torch.float64
    assert largest_error(
        gradients(list(stack.parameters()), lambda: stack(x.double(), x.double())),
        gradients(list(stack.parameters()), lambda: by_autograd(stack, x.double(), x.double())),
    ) < 1e-10


def test_to_a_lower_type_and_back_after_a_call(x):
    stack = pareprop.Stack(blocks(2))
    assert same_gradients(stack, x)
    for dtype, limit in ((torch.bfloat16, 5e-2), (torch.float32, 1e-5)):
        stack.to(dtype)
        inputs, given = list(stack.parameters()), x.to(dtype)
        expected = gradients(inputs, lambda: by_autograd(stack, x, x))
        found = gradients(inputs, lambda: stack(given, given))
        assert found[0].dtype == dtype and largest_error(found, expected) < limit


def test_freezing_and_replacing_later(x):
    stack = pareprop.Stack(blocks(3))
    assert same_gradients(stack, x)
    stack.requires_grad_(False)
    y1, _ = stack(x, x)
    assert not y1.requires_grad
    stack[1].requires_grad_(True)
    stack.zero_grad()
    assert same_gradients(stack, x)
    assert stack[0].f.qkv.weight.grad is None
    stack[1].g.up = nn.Linear(8, 16)
    stack[2].f.norm.weight = nn.Parameter(torch.rand(8))
    assert same_gradients(stack, x)


def test_hooks_of_parameters_and_modules(x):
    stack = pareprop.Stack(blocks(2), "reprop")
    weight = stack[0].f.qkv.weight
    seen, after, forwards = [], [], []
    expected = gradients([weight], lambda: stack(x, x))[0].clone()
    weight.register_hook(lambda grad: seen.append(grad.clone()) or grad * 2)
    weight.register_post_accumulate_grad_hook(lambda parameter: after.append(parameter.grad.clone()))
    stack.register_forward_hook(lambda module, args, output: forwards.append(len(output)))
    found = gradients([weight], lambda: stack(x, x))[0]
    assert len(seen) == len(after) == 1 and forwards == [2]
    torch.testing.assert_close(seen[0], expected)
    torch.testing.assert_close(found, expected * 2)


def test_hooks_of_a_block_are_refused(x):
    block = pareprop.Stack(blocks(1))[0]
    for register in (
        block.register_forward_hook,
        block.register_forward_pre_hook,
        block.register_full_backward_hook,
        block.register_full_backward_pre_hook,
    ):
        with pytest.raises(RuntimeError, match="hooks of a block"):
            register(lambda *args: None)


@pytest.mark.parametrize("mode, calls", [("stored", 1), ("reprop", 2)])
def test_hooks_of_modules_inside_of_a_branch(x, mode, calls):
    """Forward hooks are called in every computation of the branch, gradient hooks once."""
    stack = pareprop.Stack(blocks(2), plan=pareprop.StackPlan(pareprop.StackPlan.of_mode(mode, 2).policies, tail=0))
    up = stack[0].g.up
    expected = [gradient.clone() for gradient in gradients(list(up.parameters()), lambda: stack(x, x))]
    forwards, backwards, before = [], [], []
    up.register_forward_pre_hook(lambda module, args: before.append(args[0].shape))
    up.register_forward_hook(lambda module, args, output: forwards.append(torch.is_grad_enabled()))
    up.register_full_backward_hook(lambda module, inputs, outputs: backwards.append(outputs[0].shape))
    found = gradients(list(up.parameters()), lambda: stack(x, x))
    assert len(before) == len(forwards) == calls and forwards[-1] and backwards == [(2, 5, 16)]
    assert largest_error(found, expected) < 1e-5
    up.register_forward_hook(lambda module, args, output: output * 0)
    assert gradients([up.weight], lambda: stack(x, x))[0].abs().max() == 0


def test_autograd_grad(x):
    stack = pareprop.Stack(blocks(2))
    x = x.requires_grad_()
    parameters = list(stack.parameters())
    found = torch.autograd.grad(loss_of(*stack(x, x)), [x, parameters[3]])
    expected = torch.autograd.grad(loss_of(*by_autograd(stack, x, x)), [x, parameters[3]])
    assert largest_error(found, expected) < 1e-5
    assert all(parameter.grad is None for parameter in parameters)
    with pytest.raises(RuntimeError, match="gradient of a gradient"):
        torch.autograd.grad(loss_of(*stack(x, x)), x, create_graph=True)
    (grad,) = torch.autograd.grad(loss_of(*stack.reference(x, x)), x, create_graph=True)
    grad.square().sum().backward()


def test_autocast(x):
    for mode in ("reprop", "pareprop"):
        stack = pareprop.Stack(blocks(3), mode)
        with torch.autocast("cpu", torch.bfloat16):
            found = gradients(list(stack.parameters()), lambda: stack(x, x))
            expected = gradients(list(stack.parameters()), lambda: by_autograd(stack, x, x))
        assert 0 < largest_error(found, gradients(list(stack.parameters()), lambda: stack(x, x)))
        assert largest_error(found, expected) < 2e-2


def test_accumulation_and_two_open_calls(x):
    stack = pareprop.Stack(blocks(2))
    parameters = list(stack.parameters())
    once = gradients(parameters, lambda: stack(x, x))
    once = [gradient.clone() for gradient in once]
    loss_of(*stack(x, x)).backward()
    for single, parameter in zip(once, parameters):
        torch.testing.assert_close(parameter.grad, single * 2)
    stack.zero_grad()
    first, second = stack(x, x), stack(-x, x)
    (loss_of(*first) + loss_of(*second)).backward()
    both = [parameter.grad.clone() for parameter in parameters]
    stack.zero_grad()
    (loss_of(*by_autograd(stack, x, x)) + loss_of(*by_autograd(stack, -x, x))).backward()
    assert largest_error(both, [parameter.grad for parameter in parameters]) < 1e-5


class Checkpointed(nn.Module):
    def __init__(self, inner, reentrant):
        super().__init__()
        self.inner = inner
        self.reentrant = reentrant

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("mode", ["stored", "reprop", "pareprop"])
def test_checkpoint_inside_of_a_branch(x, mode, reentrant):
    pairs = [(Checkpointed(Attention(8), reentrant), Checkpointed(Mlp(8), reentrant)) for _ in range(3)]
    stack = pareprop.Stack(pairs, mode)
    if reentrant:
        # Its gradients bypass the engine that asks for them: torch says so, and nothing is lost in silence.
        with pytest.raises(RuntimeError, match="use_reentrant=False|not compatible"):
            loss_of(*stack(x, x)).backward()
        return
    assert same_gradients(stack, x)


def test_dropout_in_a_checkpoint_inside_of_a_branch_is_refused(x):
    stack = pareprop.Stack([(Checkpointed(Mlp(8, dropout=0.5), False), Mlp(8))], "reprop")
    with pytest.raises(RuntimeError, match="the stack recomputes the branch already"):
        loss_of(*stack(x, x)).backward()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("mode", ["stored", "reprop", "pareprop"])
def test_checkpoint_around_a_stack(x, mode, reentrant):
    stack = pareprop.Stack(blocks(3, dropout=0.2), mode)
    x = x.requires_grad_()
    inputs = [x, *stack.parameters()]
    torch.manual_seed(2)
    expected = gradients(inputs, lambda: stack.reference(x, x))
    torch.manual_seed(2)
    found = gradients(inputs, lambda: checkpoint(stack, x, x, use_reentrant=reentrant))
    assert largest_error(found, expected) < 1e-5


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_branches(x, backend):
    stack = pareprop.Stack(blocks(2))
    pairs = [(torch.compile(block.f, backend=backend), torch.compile(block.g, backend=backend)) for block in stack]
    compiled = pareprop.Stack(pairs, "pareprop")
    parameters = list(compiled.parameters())
    expected = gradients(parameters, lambda: by_autograd(stack, x, x))
    for _ in range(2):
        assert largest_error(gradients(parameters, lambda: compiled(x, x)), expected) < 1e-5


@pytest.mark.parametrize("way", ["compile()", "torch.compile", "part", "forward"])
def test_compiled_branches_run_on_one_lane(x, way):
    stack = pareprop.Stack(blocks(4))
    lanes = []
    stack.watch(lambda tasks: lanes.append({task.lane for task in tasks}))
    loss_of(*stack(x, x)).backward()
    assert stack.engine_now().plan().overlap
    mlp = stack[1].g
    if way == "compile()":  # in place
        mlp.compile(backend="eager")
    elif way == "torch.compile":
        stack[1].g = torch.compile(mlp, backend="eager")
    elif way == "part":
        mlp.up.compile(backend="eager")
    else:
        mlp.forward = torch.compile(mlp.forward, backend="eager")
        stack[1].g = nn.Sequential(mlp)
    loss_of(*stack(x, x)).backward()
    assert not stack.engine_now().plan().overlap and lanes[1] == {0}


def test_a_compiled_model_with_a_stack(x):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stack = pareprop.Stack(blocks(2))
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            y1, y2 = self.stack(x.tanh(), x)
            return self.head(y1 + y2)

    net = Net()
    compiled = torch.compile(net, backend="aot_eager")
    parameters = list(net.parameters())
    expected = gradients(parameters, lambda: (net(x), net(x)))
    assert largest_error(gradients(parameters, lambda: (compiled(x), compiled(x))), expected) < 1e-5


def test_no_grad_and_inference_mode(x):
    stack = pareprop.Stack(blocks(2)).eval()
    expected = by_autograd(stack, x, x)
    with torch.no_grad():
        torch.testing.assert_close(stack(x, x), expected)
    with torch.inference_mode():
        torch.testing.assert_close(stack(x, x), expected)


def test_an_ordinary_training_loop_learns(x):
    stack = pareprop.Stack(blocks(3))
    optimizer = torch.optim.AdamW(stack.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
    losses = []
    for _ in range(30):
        y1, y2 = stack(x, x)
        loss = nn.functional.mse_loss(y1 + y2, x.flip(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(stack.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
