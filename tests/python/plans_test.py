"""Plans, verification, traces, memory, and budgets for models that are not reversible."""

import copy
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
from collections import OrderedDict

import pytest
import torch
from torch import nn

import pareprop
from branches import blocks

SOURCE = pathlib.Path(os.environ.get("PAREPROP_SOURCE", pathlib.Path(__file__).parents[2]))


class Net(nn.Module):
    def __init__(self, depth=4, width=32, mode=None):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.stack = pareprop.Stack(blocks(depth, width, dropout=0.1), mode)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        h = self.embed(x)
        y1, y2 = self.stack(h, h)
        return self.head(y1 + y2)


def keys_of_the_program():
    """Those of `pareprop plan --json`, as its source has them."""
    source = (SOURCE / "cli" / "plan_text.cpp").read_text()
    first = source[source.index("ordered_json json{{") :]
    first = first[: first.index("}};")]
    return set(re.findall(r'\{"(\w+)",', first)) | set(re.findall(r'json\["(\w+)"\]', source))


def test_a_plan_for_a_model_of_ones_own():
    net, x = Net(), torch.randn(16, 64, 8)
    stored = pareprop.plan(net, x, budget="1GiB")
    assert stored.fits and stored.policies == "SSSS"
    rows = {row.mode: row for row in stored.modes}
    assert rows["stored"].activation_bytes > rows["checkpoint"].activation_bytes > rows["reprop"].activation_bytes
    budget = (rows["stored"].at_most_bytes + rows["reprop"].at_most_bytes) // 2
    plan = pareprop.plan(net, x, budget=budget)
    assert plan.fits and set(plan.policies) - {"S"} and plan.peak_bytes <= budget
    plan.apply(net)
    assert net.stack.plan == plan.step.stacks[0]
    net(x).sum().backward()
    assert "the plan" in repr(plan) and plan.policies in repr(plan)
    assert all(len(line) <= 80 for line in repr(plan).splitlines())
    assert plan._repr_html_().startswith("<p>batch 16")
    found = json.loads(json.dumps(plan.to_json()))
    assert found["policies"] == plan.policies and len(found["blocks"]) == 4 and found["fits"] is True
    of_the_program = {"parts", "flags", "command", "command_note", "kinds", "more", "less", "predicted_reserved_bytes"}
    assert found.keys() == keys_of_the_program() - of_the_program and of_the_program < keys_of_the_program()
    assert found["predicted_at_most_bytes"] == plan.at_most_bytes and found["network"] == "Net"
    assert found["step_seconds"] == plan.modes[-1].step_seconds and 0 < found["speed"] <= 1
    assert net.embed.weight.device.type == "cpu" and all(p.grad is not None for p in net.parameters())


def test_a_budget_that_is_too_small():
    net, x = Net(), torch.randn(16, 64, 8)
    plan = pareprop.plan(net, x, budget="1MiB")
    assert not plan.fits and plan.smallest_budget_bytes > 1 << 20
    with pytest.raises(ValueError, match="does not fit in 1.0 MiB"):
        plan.apply(net)
    for budget in ("lots", "8", "-3GiB"):
        with pytest.raises(ValueError):
            pareprop.plan(net, x, budget=budget)
    for budget in (None, [], True, float("nan")):
        for call in (lambda: pareprop.plan(net, x, budget=budget), lambda: pareprop.fit(Encoder(), x, budget)):
            with pytest.raises(TypeError, match="budget: got .*; expected a number of bytes"):
                call()
    with pytest.raises(ValueError, match="use pareprop.fit"):
        pareprop.plan(nn.Linear(8, 8), x, budget="1GiB")


def test_a_plan_for_a_network_of_ours():
    model = pareprop.models.create("vit_tiny", depths=4, width=48, image_size=64, classes=10)
    plan = pareprop.plan(model, 8, budget="16MiB", optimizer="adamw", state="8bit")
    assert plan.fits
    plan.apply(model)
    assert model.plan == plan.step
    measured = pareprop.plan(model, model.example(8)[0], budget="16MiB", measure=True)
    assert measured.batch == 8


def test_verify():
    net, x = Net(3), torch.randn(2, 5, 8)
    found = pareprop.verify(net, x)
    assert found and [row.mode for row in found.rows] == ["stored", "checkpoint", "reprop", "pareprop"]
    assert "max_rel_error" in repr(found) and "<table>" in found._repr_html_()
    assert [row["mode"] for row in json.loads(json.dumps(found.to_json()))] == [row.mode for row in found.rows]
    assert pareprop.verify(net, x, exact=True).rows[3].bit_identical
    assert pareprop.verify(pareprop.models.create("vit_tiny", depths=2, width=48, image_size=32), 2)

    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            return nn.functional.dropout(self.linear(x))

    broken = pareprop.verify(pareprop.Stack([(Broken(), Broken())] * 3), (x, x))
    assert not broken and "pareprop.nn.Dropout" in repr(broken)


def test_options_of_stacks_outlive_planning_verifying_and_measuring():
    net, x = Net(3, mode="reprop"), torch.randn(2, 5, 8)
    net.stack = pareprop.Stack(blocks(3, 32), "reprop", exact=True)
    assert all(row.bit_identical and row.drift == 0 for row in pareprop.verify(net, x).rows)
    assert pareprop.verify(net, x, exact=False).rows[2].drift > 0
    pareprop.plan(net, x, budget="1GiB", measure=True)
    net(x).sum().backward()
    assert net.stack.drift.worst == 0

    class Unused(nn.Linear):
        def forward(self, x):
            return x * self.weight[0]

    stack = pareprop.Stack([(Unused(8, 8), nn.Linear(8, 8))] * 3, allow_unused_parameters=True)
    assert pareprop.plan(stack, (x, x), budget="1GiB", measure=True).fits
    assert pareprop.verify(stack, (x, x))
    stack(x, x)[0].sum().backward()
    assert stack[0].f.bias.grad is None


def test_trace(tmp_path):
    net, x = Net(3), torch.randn(2, 5, 8)
    hooked = []
    net.embed.weight.register_hook(lambda gradient: hooked.append(1))
    found = pareprop.trace(net, x, title="a step")
    assert found.svg.lstrip().startswith("<svg") or "<svg" in found.svg[:200]
    assert any(event.get("name", "").startswith(("recover", "R ")) or "F2" in event.get("name", "")
               for event in found.to_json()["traceEvents"])
    assert len(hooked) == 2  # a step that warms up, and the one that is recorded
    assert found._repr_html_() == found.svg
    found.save(tmp_path / "step.svg")
    found.save(tmp_path / "step.json")
    assert "<svg" in (tmp_path / "step.svg").read_text()[:500] and json.loads((tmp_path / "step.json").read_text())


MEMORY = """
import pareprop, torch
try:
    pareprop.memory.usage()
except RuntimeError as error:
    assert "install()" in str(error)
pareprop.memory.install()
x = torch.zeros(1 << 20)
usage = pareprop.memory.usage()
assert usage.live >= 4 << 20 and usage.peak >= usage.live, usage
assert "MiB" in repr(usage) and "<td>4.0 MiB" in usage._repr_html_() and "all together" in usage._repr_html_()
assert usage.to_json()["peak"] == usage.peak and sum(usage.to_json()["live_by_tag"].values()) == usage.live
del x
pareprop.memory.reset_peaks()
assert pareprop.memory.usage().peak < 4 << 20
pareprop.memory.trim()
assert pareprop.memory.free() > 0
"""


def test_memory():
    subprocess.run([sys.executable, "-c", MEMORY], check=True, timeout=120)


class Layer(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(32, 4, 128, dropout=0.1, batch_first=True, norm_first=True)


class Encoder(nn.Module):
    def __init__(self, depth=6):
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.layers = nn.ModuleList([Layer() for _ in range(depth)])

    def forward(self, x):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h)
        return h


def test_fit_chooses_for_each_block():
    model, x = Encoder(), torch.randn(8, 64, 8)
    assert pareprop.fit(model, x, "1GiB").checkpointed == []
    torch.manual_seed(3)
    model(x).square().mean().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    names = list(model.state_dict())
    loose = pareprop.fit(model, x, "1GiB")
    budget = (loose.stored_peak_bytes + loose.smallest_peak_bytes) // 2
    found = pareprop.fit(model, x, budget, blocks="layers")
    assert 0 < len(found.checkpointed) < 6 and found.peak_bytes <= budget
    assert list(model.state_dict()) == names
    model.zero_grad()
    torch.manual_seed(3)
    model(x).square().mean().backward()
    for parameter, gradient in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient)
    assert "the plan" in repr(found) and found.to_json()["peak_bytes"] <= budget and "<table>" in found._repr_html_()
    # A copy computes with its own weights, and a file has the model's own classes.
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert twin(x).abs().max() == 0 and type(pickle.loads(pickle.dumps(model)).layers[0]) is Layer
    assert isinstance(model.layers[0], Layer) and type(model.layers[0]) is not Layer
    pareprop.fit(model, x, "1GiB")
    assert type(model.layers[0]) is Layer


def test_fit_refuses():
    x = torch.randn(8, 64, 8)
    with pytest.raises(ValueError, match="no repeated blocks"):
        pareprop.fit(nn.Linear(8, 8), x, "1GiB")
    with pytest.raises(ValueError, match="no 'encoder.layer'"):
        pareprop.fit(Encoder(), x, "1GiB", blocks="encoder.layer")
    with pytest.raises(ValueError, match="with every block checkpointed"):
        pareprop.fit(Encoder(), x, "100KiB")
    with pytest.raises(ValueError):
        pareprop.fit(Encoder(), x, "plenty")
    with pytest.raises(ValueError, match="optimizer is 'adam'"):
        pareprop.fit(Encoder(), x, "1GiB", optimizer="adam")


def test_fit_updates_running_statistics_once():
    parts = [nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Linear(64, 16)) for _ in range(4)]
    model, x = nn.Sequential(nn.Linear(16, 16), nn.Sequential(*parts)), torch.randn(256, 16)
    twin = copy.deepcopy(model)
    loose = pareprop.fit(model, x, "1GiB", optimizer=None)
    budget = (loose.stored_at_most_bytes + loose.smallest_at_most_bytes) // 2
    assert "C" in pareprop.fit(model, x, budget, optimizer=None).policies
    for net in (model, twin):
        net(x).square().mean().backward()
    assert all(map(torch.equal, model.buffers(), twin.buffers()))
    assert all(torch.allclose(a.grad, b.grad) for a, b in zip(model.parameters(), twin.parameters()))


def test_fit_stores_blocks_without_products_where_there_is_room():
    class Wave(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8))

        def forward(self, x):
            return x + (x * self.scale).sin()

    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(*[Wave() for _ in range(4)]))
    assert pareprop.fit(model, torch.randn(64, 8), "1GiB").policies == "SSSS"


def test_fit_finds_nested_named_and_shared_blocks():
    def pair():
        return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

    shared, x = pair(), torch.randn(16, 8)
    for model, names in (
        (nn.Sequential(pair(), pair()), ["0", "1"]),
        (nn.Sequential(OrderedDict(a=pair(), b=pair())), ["a", "b"]),
        (nn.Sequential(shared, shared), ["0"]),
    ):
        assert pareprop.fit(model, x, "1GiB").blocks == names
    with pytest.raises(ValueError, match="has other blocks inside it"):
        pareprop.fit(nn.Sequential(pair(), pair()), x, "1GiB", blocks=["", "0"])
    with pytest.raises(ValueError, match="eval mode"):
        pareprop.fit(nn.Sequential(pair(), pair()).eval(), x, "1GiB")


def test_fit_finds_the_blocks_of_stages():
    class Block(nn.Sequential):
        def forward(self, x):
            return x + super().forward(x)

    class Stage(nn.Module):
        def __init__(self, width, depth, after=8):
            super().__init__()
            inner = [Block(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)) for _ in range(depth)]
            self.blocks = nn.ModuleList(inner)
            self.merge = nn.Linear(width, after)

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.merge(x)

    x = torch.randn(64, 8)
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(Stage(8, 2, 16), Stage(16, 1)))
    found = pareprop.fit(model, x, "1GiB")
    assert found.blocks == ["1.0.blocks.0", "1.0.blocks.1", "1.1.blocks.0"]
    assert found.smallest_peak_bytes < pareprop.fit(model, x, "1GiB", blocks="1").smallest_peak_bytes
    # Modules of one size are blocks, whatever they have inside of them.
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(Stage(8, 2), Stage(8, 2)))
    assert pareprop.fit(model, x, "1GiB").blocks == ["1.0", "1.1"]


def test_fit_names_what_a_block_must_not_do():
    class Adding(nn.Linear):
        def forward(self, x):
            told.append(x.detach())
            return super().forward(torch.cat([x, *told]))[: len(x)]

    told = []
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(Adding(8, 8), Adding(8, 8)))
    with pytest.raises(ValueError, match="changes something outside of itself"):
        pareprop.fit(model, torch.randn(4, 8), "1GiB")


def test_a_fit_that_fails_leaves_the_one_before():
    model, x = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)]), torch.randn(512, 64)
    loose = pareprop.fit(model, x, "1GiB")
    tight = pareprop.fit(model, x, loose.smallest_at_most_bytes)
    assert tight.checkpointed
    with pytest.raises(ValueError, match="more than the budget"):
        pareprop.fit(model, x, "100KiB")
    again = [name for name, block in model.named_children() if hasattr(type(block), "_stored_class")]
    assert again == tight.checkpointed


TIMM = """
import sys
sys.path.insert(0, {folder!r})
from timm_alone import timm
import pareprop, safetensors.torch, torch
if timm is None:
    sys.exit(77)
model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=5, num_classes=10)
x = torch.randn(128, 3, 64, 64)
loose = pareprop.fit(model, x, "1GiB", optimizer=None)
assert loose.blocks == ["blocks.%d" % i for i in range(5)] and loose.policies == "SSSSS", loose
budget = (loose.stored_at_most_bytes + loose.smallest_at_most_bytes) // 2
found = pareprop.fit(model, x, budget, optimizer=None)
assert "C" in found.policies and found.at_most_bytes <= budget, found
model(x).mean().backward()
safetensors.torch.save_file(model.state_dict(), {file!r})
ours = pareprop.models.create(pretrained={file!r}, heads=3, norm_eps=1e-6).eval()
with torch.no_grad():
    torch.testing.assert_close(ours(x[:2]), model.eval()(x[:2]), rtol=1e-4, atol=1e-5)
"""


def test_timm(tmp_path):
    """A fit of its model, and its weights in ours. In a process of its own: transformers must not see what timm is given
    instead of torchvision."""
    code = TIMM.format(folder=str(SOURCE / "tests" / "train"), file=str(tmp_path / "timm.safetensors"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    if done.returncode == 77:
        pytest.skip("timm is not installed")
    assert done.returncode == 0, done.stderr
