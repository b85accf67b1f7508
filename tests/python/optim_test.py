"""The lean optimizers as optimizers of torch."""

import contextlib
import copy
import io
import warnings

import pytest
import torch
from torch import nn

import pareprop
from branches import blocks, loss_of
from pareprop.optim import SGD, Adafactor, AdamW, update_inside


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))


def train(model, optimizer, steps=10):
    torch.manual_seed(1)
    x = torch.randn(32, 64)
    losses = []
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "ours, torchs",
    [
        (lambda p: AdamW(p, 1e-3, weight_decay=0.1), lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1)),
        (lambda p: SGD(p, 0.1, 0.9, 0.01), lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01)),
    ],
)
def test_they_are_torchs_with_state_in_fp32(ours, torchs):
    mine, theirs = net(), net()
    assert train(mine, ours(mine.parameters())) == pytest.approx(train(theirs, torchs(theirs.parameters())), rel=1e-5)
    for a, b in zip(mine.parameters(), theirs.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: AdamW(p, 3e-3, state="bf16"),
        lambda p: AdamW(p, 3e-3, state="8bit"),
        lambda p: SGD(p, 0.5, 0.9, state="8bit"),
        lambda p: Adafactor(p, 1e-2),
    ],
)
def test_lean_state_learns_and_is_small(make):
    model = net()
    optimizer = make(model.parameters())
    losses = train(model, optimizer, 40)
    assert losses[-1] < 0.6 * losses[0]
    weights = sum(p.nbytes for p in model.parameters())
    state = sum(t.nbytes for tensors in optimizer.state.values() for t in tensors.values())
    assert state < 1.1 * weights


@pytest.mark.parametrize("state", ["fp32", "bf16", "8bit"])
@pytest.mark.parametrize("how", ["state_dict", "deepcopy", "file"])
def test_training_goes_on_bit_for_bit(state, how):
    model = net()
    optimizer = AdamW(model.parameters(), 1e-3, state=state)
    train(model, optimizer, 3)
    if how == "deepcopy":
        twin, resumed = copy.deepcopy((model, optimizer))
    else:
        twin = copy.deepcopy(model)
        resumed = AdamW(twin.parameters(), 0.5, state=state)
        saved = optimizer.state_dict()
        if how == "file":
            file = io.BytesIO()
            torch.save(saved, file)
            file.seek(0)
            saved = torch.load(file)
        resumed.load_state_dict(copy.deepcopy(saved))
    assert train(model, optimizer, 3) == train(twin, resumed, 3)
    assert all(map(torch.equal, model.parameters(), twin.parameters()))


def test_a_copied_optimizer_has_the_parameters_of_a_copied_network_of_ours():
    model = pareprop.models.create("vit_tiny", depths=1, width=48, image_size=32, classes=5)
    images, labels, _ = model.example(2)
    optimizer = AdamW(model.parameters())
    twin, resumed = copy.deepcopy((model, optimizer))
    before = next(model.parameters()).clone()
    for own, stepping in ((model, optimizer), (twin, resumed)):
        own.loss(images, labels).backward()
        stepping.step()
    assert all(map(torch.equal, twin.parameters(), model.parameters()))
    assert not torch.equal(next(twin.parameters()), before)
    with pytest.raises(RuntimeError, match="copy the model first"):
        copy.deepcopy((optimizer, model))


def test_groups_schedulers_and_mistakes():
    model = net()
    optimizer = AdamW(
        [{"params": model[0].parameters(), "lr": 1e-2}, {"params": model[2].parameters(), "weight_decay": 0.0}], 1e-3
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
    before = [p.clone() for p in model.parameters()]
    train(model, optimizer, 1)
    scheduler.step()
    assert all(map(torch.equal, model.parameters(), before))
    optimizer.param_groups[0]["weight_decay"] = 3
    with pytest.raises(ValueError, match="only 'lr' can be changed"):
        optimizer.step()
    with pytest.raises(ValueError, match="beta1"):
        AdamW(model.parameters(), betas=(2.0, 0.9))
    with pytest.raises(ValueError, match="fp32, bf16|8bit"):
        AdamW(model.parameters(), state="fp8")
    with pytest.raises(ValueError, match="another kind of optimizer or state"):
        AdamW(model.parameters()).load_state_dict(SGD(model.parameters(), momentum=0.9).state_dict())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(8, 8)
        self.stack = pareprop.Stack(blocks(4))

    def forward(self, x):
        h = self.embed(x)
        return self.stack(h, h)


@pytest.mark.parametrize("make", [AdamW, lambda p: AdamW(p, state="8bit"), lambda p: SGD(p, 0.1, 0.9), Adafactor])
@pytest.mark.parametrize("mode", ["reprop", "pareprop"])
def test_updates_inside_the_backward_pass_give_the_same_bits(make, mode):
    x = torch.randn(2, 5, 8)
    weights = []
    for inside in (False, True):
        model = Net()
        model.stack.set_mode(mode)
        optimizer = make(model.parameters())
        for _ in range(3):
            if inside:
                with update_inside(optimizer, model):
                    loss_of(*model(x)).backward()
                assert all(parameter.grad is None for parameter in model.parameters())
            else:
                optimizer.zero_grad()
                loss_of(*model(x)).backward()
                optimizer.step()
        weights.append(list(model.parameters()))
    assert all(map(torch.equal, *weights))


def test_updates_inside_of_a_network_of_ours():
    weights = []
    for inside in (False, True):
        model = pareprop.models.create("vit_tiny", depths=2, width=48, image_size=32, classes=5)
        optimizer = AdamW(model.parameters())
        input, target, _ = model.example(2)
        for _ in range(2):
            if inside:
                with update_inside(optimizer, model):
                    model.loss(input, target).backward()
            else:
                optimizer.zero_grad()
                model.loss(input, target).backward()
                optimizer.step()
        weights.append(list(model.parameters()))
    assert all(map(torch.equal, *weights))


class Looking(nn.Module):
    """Looks at something when it is computed again."""

    def __init__(self, inner, look):
        super().__init__()
        self.inner, self.look = inner, look

    def forward(self, x):
        if torch.is_grad_enabled():
            self.look()
        return self.inner(x)


def test_upper_blocks_are_updated_before_lower_ones_are_computed_again():
    model, x, seen = Net(), torch.randn(2, 5, 8), []
    top = model.stack[3].g.up.weight
    before = top.clone()
    pairs = [tuple(block.branches()) for block in model.stack]
    pairs[0] = (Looking(pairs[0][0], lambda: seen.append(torch.equal(top, before))), pairs[0][1])
    model.stack = pareprop.Stack(pairs, plan=pareprop.StackPlan(["reverse"] * 4, tail=0))
    optimizer = SGD(model.parameters(), 0.1)
    with update_inside(optimizer, model):
        loss_of(*model(x)).backward()
    assert seen == [False]
    # A second call of the stack would use weights that the first has changed.
    with update_inside(optimizer, model), pytest.raises(RuntimeError, match="changed in place"):
        (loss_of(*model(x)) + loss_of(*model(-x))).backward()


def test_updates_inside_of_weights_that_are_used_elsewhere_or_have_hooks():
    x, weights, hooked = torch.randn(2, 5, 8), [], []
    for inside in (False, True):
        model = Net()
        model.head = nn.Linear(8, 8)
        model.head.weight = model.stack[1].f.out.weight
        model.stack[2].g.up.weight.register_hook(lambda gradient: hooked.append(1) or 2 * gradient)
        optimizer = SGD(model.parameters(), 0.1)
        with update_inside(optimizer, model) if inside else contextlib.nullcontext():
            y1, y2 = model(x)
            loss_of(model.head(y1), y2).backward()
        if not inside:
            optimizer.step()
        weights.append(list(model.parameters()))
    assert all(map(torch.equal, *weights)) and len(hooked) == 2


def test_updates_inside_follow_the_learning_rate():
    x, weights = torch.randn(2, 5, 8), []
    for inside in (False, True):
        model = Net()
        optimizer = SGD(model.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
        with update_inside(optimizer, model) if inside else contextlib.nullcontext(), warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                loss_of(*model(x)).backward()
                if not inside:
                    optimizer.step()
                    optimizer.zero_grad()
                scheduler.step()
            before = model.embed.weight.clone()
            optimizer.param_groups[0]["lr"] = 0.0
            if inside:
                loss_of(*model(x)).backward()
                assert torch.equal(model.embed.weight, before)
                optimizer.param_groups[0]["momentum"] = 0.5
                with pytest.raises(ValueError, match="only 'lr' can be changed"):
                    loss_of(*model(x)).backward()
        weights.append(list(model.parameters()))
    assert all(map(torch.equal, *weights))


def test_updates_inside_refuse_and_end():
    model, x = Net(), torch.randn(2, 5, 8)
    with pytest.raises(TypeError, match="pareprop.optim"), update_inside(torch.optim.SGD(model.parameters()), model):
        pass
    with pytest.raises(ValueError, match="not in the optimizer"), update_inside(AdamW(model.stack.parameters()), model):
        pass
    optimizer = AdamW(model.parameters())
    with pytest.raises(ZeroDivisionError), update_inside(optimizer, model):
        loss = loss_of(*model(x))
        1 / 0
    loss.backward()  # after its end: gradients go where they always go
    assert all(parameter.grad is not None for parameter in model.parameters())
    with pytest.raises(RuntimeError, match="zero_grad"), update_inside(optimizer, model):
        pass
