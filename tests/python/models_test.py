"""Networks in C++ as modules of Python."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import pareprop
from branches import copied, largest_error

SMALL = {  # of each family
    "vit_tiny": {"depths": 3, "width": 48, "image_size": 32, "classes": 5},
    "swin_tiny": {"depths": [2, 1, 2, 1], "width": 24, "image_size": 56, "classes": 5},
    "mvit_cifar": {"depths": [2, 1, 2], "width": 16, "classes": 5},
    "roberta_base": {"depths": 2, "width": 48, "length": 16, "vocabulary": 99},
}


def small(name="vit_tiny", **more):
    names = pareprop.models.names()
    assert name in names, names
    # Theirs does not cut its windows where a map is smaller, and here none is.
    sizes = {**SMALL, "swin_cifar": {"width": 32, "classes": 5}}
    return pareprop.models.create(name, **{**sizes[name], **more})


def gradients(model, batch=2):
    model.zero_grad()
    input, target, mask = model.example(batch, seed=1)
    torch.manual_seed(4)
    model.loss(input, target, mask).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_the_small_networks_are_of_all_families():
    assert {name.split("_")[0] for name in SMALL} == {name.split("_")[0] for name in pareprop.models.names()}


@pytest.mark.parametrize("name", pareprop.models.names())
def test_every_network_is_a_module(name, monkeypatch):
    """Of full size, on the meta device."""
    made = pareprop._core.Model
    monkeypatch.setattr(
        pareprop._core,
        "Model",
        lambda name, overrides, device, dtype, seed: made(name, overrides, torch.device("meta"), dtype, seed),
    )
    model = pareprop.models.create(name)
    names = [path for path, _ in model.engine.named_parameters()]
    assert isinstance(model, nn.Module) and list(model.parameters()) and set(model.state_dict()) == set(names)
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in model.parameters())


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


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies(how, name):
    model = small(name, exact=True, mode="reprop")
    next(model.parameters()).requires_grad_(False)
    twin = copied(model, how)
    assert twin.plan == model.plan and not next(twin.parameters()).requires_grad
    input, _, mask = model.example(2)
    assert torch.equal(model.eval()(input, mask), twin.eval()(input, mask))


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


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("plain", [False, True])
def test_files(tmp_path, name, plain):
    changes = {"plain": True} if plain else {}
    model = small(name, **changes).eval()
    model.save(tmp_path / "own.safetensors")
    other = small(name, seed=3, **changes).eval()
    input, _, mask = model.example(2)
    assert not torch.equal(model(input, mask), other(input, mask))
    other = small(name, seed=3, pretrained=tmp_path / "own.safetensors", **changes).eval()
    assert torch.equal(model(input, mask), other(input, mask))


def vit_of_hugging_face():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=192,
        image_size=32,
        num_labels=5,
        layer_norm_eps=1e-6,
    )
    return ViTForImageClassification(config)


def swin_of_hugging_face():
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=32,
        patch_size=4,
        embed_dim=32,
        depths=[2, 2],
        num_heads=[4, 8],
        window_size=4,
        num_labels=5,
        drop_path_rate=0.0,
    )
    return SwinForImageClassification(config)


def roberta_of_hugging_face():
    from transformers import RobertaPreLayerNormConfig, RobertaPreLayerNormForMaskedLM

    config = RobertaPreLayerNormConfig(
        vocab_size=99,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=12,
        intermediate_size=192,
        max_position_embeddings=514,
        type_vocab_size=1,
        pad_token_id=1,
        layer_norm_eps=1e-5,
    )
    return RobertaPreLayerNormForMaskedLM(config)


HUGGING_FACE = {
    "vit_tiny": vit_of_hugging_face,
    "swin_cifar": swin_of_hugging_face,
    "roberta_base": roberta_of_hugging_face,
}


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_names_of_hugging_face(tmp_path, name):
    theirs = HUGGING_FACE[name]().eval()
    with torch.no_grad():  # no bias stays zero
        for parameter in theirs.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    state = theirs.state_dict()
    ours = small(name, plain=True).eval()
    ours.load_hugging_face_state_dict(state)

    # Of text the scores of all tokens, row by row.
    input = torch.randint(2, 99, (2, 16)) if name.startswith("roberta") else ours.example(2)[0]
    with torch.no_grad():
        expected = theirs(input).logits.flatten(0, -2)
        scores = ours(input).flatten(0, -2)
        torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)

    # Their file, read here.
    theirs.save_pretrained(tmp_path)
    from_file = small(name, plain=True, pretrained=tmp_path / "model.safetensors").eval()
    with torch.no_grad():
        assert torch.equal(from_file(input).flatten(0, -2), scores)
    # Their folder tells the network, and what is asked for besides is adapted.
    for path in (tmp_path, tmp_path / "model.safetensors"):
        alone = pareprop.models.create(pretrained=path).eval()
        with torch.no_grad():
            assert torch.equal(alone(input).flatten(0, -2), scores)
        assert not alone.adapted and alone.plan.mode == "stored"
    if not name.startswith("roberta"):
        other = pareprop.models.create(pretrained=tmp_path, classes=7, mode="checkpoint")
        assert other(input).shape == (2, 7) and "7" in " ".join(other.adapted) and other.plan.mode == "checkpoint"

    # Our file, read here and there: it has every one of their names and no other.
    ours.save(tmp_path / "back.safetensors", hugging_face=True)
    again = small(name, plain=True, seed=7, pretrained=tmp_path / "back.safetensors").eval()
    with torch.no_grad():
        assert torch.equal(again(input).flatten(0, -2), scores)
    in_file = load_file(tmp_path / "back.safetensors")
    assert in_file.keys() == load_file(tmp_path / "model.safetensors").keys()
    (tmp_path / "back.safetensors").replace(tmp_path / "model.safetensors")
    back, report = type(theirs).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    assert all(torch.equal(value, state[key]) for key, value in back.state_dict().items())

    # The same names without a file.
    named = ours.hugging_face_state_dict()
    assert named.keys() == in_file.keys()
    assert all(torch.equal(named[key], in_file[key]) for key in named)


SIZES = {
    "vit_tiny": {"heads": 2, "mlp_ratio": 2.0, "patch": 8, "norm_eps": 1e-3, "no_qkv_bias": True, "ending": "sum",
                 "class_token": True},
    "swin_tiny": {"heads": [1, 2, 4, 8], "window": 5, "ending": "y2"},
    "mvit_cifar": {},
    "roberta_base": {"heads": 3, "positions": 40, "ending": "sum-x"},
}


@pytest.mark.parametrize("name", SIZES)
def test_a_run_of_the_program_tells_its_network(tmp_path, name):
    model = small(name, **SIZES[name]).eval()
    sizes = {**SMALL[name], **SIZES[name]}
    # As the program writes it.
    run = {
        "model": name, "plain": False, "depth": sizes.get("depths"), "width": sizes.get("width"),
        "heads": [sizes["heads"]] if isinstance(sizes.get("heads"), int) else sizes.get("heads"),
        "class_token": sizes.get("class_token", False), "seq_len": sizes.get("length"), "embeddings": None,
        "vocabulary": 4096, "data": "digits", "dropout": None,
    }
    run["depth"] = [run["depth"]] if isinstance(run["depth"], int) else run["depth"]
    same = ("mlp_ratio", "patch", "window", "positions", "norm_eps", "no_qkv_bias", "distillation", "encoder", "ending")
    run.update({key: sizes.get(key) for key in same})
    (tmp_path / "config.json").write_text(json.dumps(run))
    if not name.startswith("roberta"):
        shape = {"classes": list("abcde"), "image_size": sizes.get("image_size", 32), "channels": 3}
        (tmp_path / "classes.json").write_text(json.dumps(shape))
    model.save(tmp_path / "model.safetensors")
    input, _, mask = model.example(2)
    for given in ((), (name,)):
        found = pareprop.models.create(*given, pretrained=tmp_path).eval()
        assert torch.equal(found(input, mask), model(input, mask)) and found.name == name and not found.adapted
    assert copied(found, "pickle").state_dict().keys() == model.state_dict().keys()
    small(name, seed=5, **SIZES[name]).load(tmp_path)
    with pytest.raises(ValueError):
        small(name, depths=4).load(tmp_path)


def test_words_of_sizes():
    text = {"plain": True, "depths": 1, "width": 48, "heads": 2, "vocabulary": 50}
    first, behind = (pareprop.models.create("roberta_base", **text, encoder=word) for word in ("norm-first", "bert"))
    assert first.state_dict().keys() != behind.state_dict().keys()
    deit = pareprop.models.create("vit_tiny", plain=True, depths=1, distillation="heads", image_size=32)
    assert len(deit.state_dict()) > len(pareprop.models.create("vit_tiny", plain=True, depths=1).state_dict())
    for wrong in ({"encoder": "gpt"}, {"ending": "last"}, {"distillation": "yes"}, {"window": 3}, {"mode": "reprop"}):
        with pytest.raises(ValueError):
            pareprop.models.create("vit_tiny", plain=True, depths=1, **wrong)


def test_weights_that_do_not_tell_their_network(tmp_path):
    small(plain=True).save(tmp_path / "own.safetensors")
    with pytest.raises(ValueError, match="do not tell their network"):
        pareprop.models.create(pretrained=tmp_path / "own.safetensors")
    vit_of_hugging_face().save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match="number of heads"):
        pareprop.models.create(pretrained=tmp_path)
    with pytest.warns(UserWarning, match="no config.json"):
        found = pareprop.models.create(pretrained=tmp_path, heads=3, image_size=32)
    assert found(found.example(1)[0]).shape == (1, 5)
    with pytest.raises(ValueError, match="give classes="):
        pareprop.models.create("vit_small", pretrained=tmp_path, plain=True, depths=3, width=48, heads=3, image_size=32)
    with pytest.raises(TypeError, match="name of a network"):
        pareprop.models.create()


def test_a_state_dict_of_another_size_is_refused():
    state = vit_of_hugging_face().state_dict()
    with pytest.raises(ValueError, match="'vit.embeddings.cls_token' has the shape"):
        small(plain=True, width=96).load_hugging_face_state_dict(state)
    del state["vit.layernorm.bias"]
    with pytest.raises(KeyError, match="no 'vit.layernorm.bias'"):
        small(plain=True).load_hugging_face_state_dict(state)


def test_only_plain_networks_have_names_of_hugging_face(tmp_path):
    for name in SMALL:
        with pytest.raises(ValueError):
            small(name).hugging_face_state_dict()
        with pytest.raises(ValueError):
            small(name).save(tmp_path / "no.safetensors", hugging_face=True)


def test_plain_networks_are_planned_and_verified():
    model = pareprop.models.create("vit_tiny", plain=True, depths=4, image_size=32, classes=5)
    checked = pareprop.verify(model, 2)
    assert checked.holds and [row.mode for row in checked.rows] == ["stored", "checkpoint"], checked
    stored, checkpoint, *_ = pareprop.plan(model, 64, budget="1GiB").modes
    plan = pareprop.plan(model, 64, budget=(stored.peak_bytes + checkpoint.peak_bytes) // 2)
    assert plan.fits and plan.peak_bytes < stored.peak_bytes, plan
    assert set(plan.policies) <= set("SPC ") and len(set(plan.policies) - {" "}) > 1, plan
    plan.apply(model)
    images, labels, _ = model.example(64)
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
