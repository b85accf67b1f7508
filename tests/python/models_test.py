"""Networks in C++ as modules of Python."""

import pytest
import torch
from torch import nn

import pareprop
from branches import copied, largest_error

SMALL = {
    "vit_tiny": {"depths": 3, "width": 48, "image_size": 32, "classes": 5},
    "swin_cifar": {"classes": 5},
    "roberta_base": {"depths": 2, "width": 48, "length": 16, "vocabulary": 99},
}


def small(name="vit_tiny", **more):
    names = pareprop.models.names()
    assert name in names, names
    return pareprop.models.create(name, **{**SMALL[name], **more})


def gradients(model, batch=2):
    model.zero_grad()
    input, target, mask = model.example(batch, seed=1)
    torch.manual_seed(4)
    model.loss(input, target, mask).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("name", SMALL)
def test_modes_agree(name):
    model = small(name, mode="stored")
    expected = gradients(model)
    for mode in ("checkpoint", "reprop", "pareprop"):
        model.set_mode(mode)
        assert model.plan.mode == mode
        assert largest_error(gradients(model), expected) < 1e-5


def test_it_learns_and_evaluates():
    model = small(dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    input, target, _ = model.example(8)
    losses = []
    for _ in range(25):
        loss = nn.functional.cross_entropy(model(input), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert not torch.equal(model(input), model(input))
    model.eval()
    assert torch.equal(model(input), model(input))
    assert (model(input).argmax(1) == target).float().mean() > 0.8


def test_parameters_are_those_of_the_network():
    model = small()
    state = model.state_dict()
    assert all(isinstance(parameter, nn.Parameter) for parameter in model.parameters())
    assert len(state) == len(list(model.parameters())) and any(name.endswith("weight") for name in state)
    other = small(seed=9)
    input = model.example(2)[0]
    assert not torch.equal(model.eval()(input), other.eval()(input))
    keys = other.load_state_dict({**state, "more": torch.zeros(1)}, strict=False)
    assert keys.unexpected_keys == ["more"]
    assert torch.equal(model(input), other(input))
    other.load_state_dict(state, assign=True)
    with pytest.raises(RuntimeError, match="was replaced by another object"):
        other(input)


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies(how):
    model = small(exact=True, mode="reprop")
    next(model.parameters()).requires_grad_(False)
    twin = copied(model, how)
    assert twin.plan == model.plan and not next(twin.parameters()).requires_grad
    input = model.example(2)[0]
    assert torch.equal(model.eval()(input), twin.eval()(input))


def test_types():
    model = small().double()
    input, target, _ = model.example(2)
    assert input.dtype == torch.float64
    model.loss(input, target).backward()
    assert next(model.parameters()).grad.dtype == torch.float64
    with pytest.raises(TypeError, match="use torch.autocast"):
        model.bfloat16()
    model.float()
    input = input.float()
    with torch.autocast("cpu", torch.bfloat16):
        low = model.loss(input, target)
    assert low.item() != model.loss(input, target).item()
    assert abs(low.item() - model.loss(input, target).item()) < 0.05


def test_files(tmp_path):
    model = small().eval()
    model.save(tmp_path / "own.safetensors")
    other = small(seed=3, pretrained=tmp_path / "own.safetensors").eval()
    input = model.example(2)[0]
    assert torch.equal(model(input), other(input))


def test_names_of_hugging_face(tmp_path):
    from transformers import ViTConfig, ViTForImageClassification

    ours = pareprop.models.create("vit_tiny", plain=True, depths=2, image_size=32, classes=5).eval()
    theirs = ViTForImageClassification(
        ViTConfig(
            hidden_size=192,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=768,
            image_size=32,
            num_labels=5,
            layer_norm_eps=1e-6,
        )
    ).eval()
    ours.load_hugging_face_state_dict(theirs.state_dict())
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images).logits, rtol=1e-4, atol=1e-5)
    theirs.save_pretrained(tmp_path)
    from_file = pareprop.models.create(
        "vit_tiny", plain=True, depths=2, image_size=32, classes=5, pretrained=tmp_path / "model.safetensors"
    ).eval()
    with torch.no_grad():
        assert torch.equal(from_file(images), ours(images))
    ours.save(tmp_path / "back.safetensors", hugging_face=True)
    assert set(ours.hugging_face_state_dict()) <= set(theirs.state_dict()) | set(
        name for name in ours.hugging_face_state_dict()
    )
    with pytest.raises(ValueError):
        small().hugging_face_state_dict()


def test_plain_networks_are_planned_and_verified():
    model = pareprop.models.create("vit_tiny", plain=True, depths=4, image_size=32, classes=5)
    checked = pareprop.verify(model, 2)
    assert checked.holds and [row.mode for row in checked.rows] == ["stored", "checkpoint"], checked
    stored, checkpoint, *_ = pareprop.plan(model, 4, budget="1GiB").modes
    plan = pareprop.plan(model, 4, budget=(stored.peak_bytes + checkpoint.peak_bytes) // 2)
    assert plan.fits and plan.peak_bytes < stored.peak_bytes, plan
    assert set(plan.policies) <= set("SPC ") and len(set(plan.policies) - {" "}) > 1, plan
    plan.apply(model)
    images, labels, _ = model.example(4)
    model.loss(images, labels).backward()


def test_mistakes():
    with pytest.raises(ValueError, match="vit_small"):
        pareprop.models.create("vit_smal")
    with pytest.raises(ValueError):
        pareprop.models.create("vit_tiny", vocabulary=5)
    with pytest.raises(ValueError):
        small()(torch.randn(1, 3, 16, 16))


def test_hooks_and_frozen_parameters():
    model = small(mode="reprop")
    frozen, hooked, *_ = model.parameters()
    frozen.requires_grad_(False)
    seen = []
    hooked.register_hook(lambda gradient: seen.append(1))
    input, target, _ = model.example(2)
    model.loss(input, target).backward()
    assert frozen.grad is None and seen == [1]
