"""Adapters of PEFT inside the branches of a stack."""

import pytest
import torch
from torch import nn

import pareprop

peft = pytest.importorskip("peft")


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(self.norm(x))))


class Net(nn.Module):
    def __init__(self, mode, width=8, depth=3):
        super().__init__()
        self.embed, self.head = nn.Linear(4, width), nn.Linear(width, 2)
        self.stack = pareprop.Stack([(Mlp(width), Mlp(width)) for _ in range(depth)], mode)

    def forward(self, x):
        h = self.embed(x)
        y1, y2 = self.stack(h, h)
        return self.head(y1 + y2)


def adapted(mode, dropout=0.0):
    torch.manual_seed(1)
    config = peft.LoraConfig(
        r=2, target_modules=["fc1", "fc2"], modules_to_save=["head"], lora_dropout=dropout, init_lora_weights=False
    )
    model = peft.get_peft_model(Net(mode), config)
    return pareprop.nn.replace_dropout(model) if dropout else model


def gradients(model, x):
    torch.manual_seed(2)
    model(x).square().mean().backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    model.zero_grad()
    return found


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_every_mode_has_the_gradients_of_stored_training(dropout):
    x = torch.randn(5, 4)
    expected = gradients(adapted("stored", dropout), x)
    assert any("lora_A" in name for name in expected) and any("lora_B" in name for name in expected)
    assert all("lora" in name or "head" in name for name in expected)
    for mode in ("checkpoint", "reprop", "pareprop"):
        found = gradients(adapted(mode, dropout), x)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=f"{mode} {name}")


def test_adapters_are_saved_and_merged(tmp_path):
    x = torch.randn(5, 4)
    model = adapted("reprop").eval()
    model.save_pretrained(tmp_path)
    torch.manual_seed(1)
    again = peft.PeftModel.from_pretrained(Net("stored"), tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(again(x), model(x))
        merged = model.merge_and_unload()
        torch.testing.assert_close(merged(x), again(x), rtol=1e-4, atol=1e-5)
    assert isinstance(merged.stack, pareprop.Stack) and not any("lora" in name for name in merged.state_dict())
