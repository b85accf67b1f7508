"""Checkpoints of SlowFast's Rev-ViT and Rev-MViT, converted by tools/convert_slowfast.py, give the scores
and gradients of those networks. They are written down here once more, after SlowFast's description, as
functions of a state with SlowFast's names. Usage: convert_slowfast_test.py PATH_OF_model_probe"""

import contextlib
import io
import os
import runpy
import subprocess
import sys
import tempfile
from unittest import mock

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

TOOL = os.path.join(os.path.dirname(__file__), "..", "..", "tools", "convert_slowfast.py")
SCORES = 1e-5
GRADIENTS = 1e-4
CLASSES = 7


class Net:
    """The network; parameters are made where they are first used."""

    def __init__(self, width, heads, layers, patch, time=False, separate=True, v2=False):
        # layers: for each, None (ViT), or (transition, stride of keys and values)
        self.width, self.heads, self.layers, self.patch = width, heads, layers, patch
        self.time, self.separate, self.v2 = time, separate, v2
        self.state = {}

    def get(self, name, *shape, around=0.0):
        if name not in self.state:
            self.state[name] = (around + 0.1 * torch.randn(shape)).requires_grad_()
        return self.state[name]

    def linear(self, name, x, out):
        return F.linear(x, self.get(f"{name}.weight", out, x.shape[-1]), self.get(f"{name}.bias", out))

    def norm(self, name, x):
        width = x.shape[-1]
        return F.layer_norm(x, (width,), self.get(f"{name}.weight", width, around=1.0),
                            self.get(f"{name}.bias", width), 1e-6)

    def pool(self, attention, which, x, stride):  # (batch, heads, tokens, width of a head)
        batch, heads, tokens, width = x.shape
        side = round(tokens ** 0.5)
        maps = x.reshape(batch * heads, 1, side, side, width).permute(0, 4, 1, 2, 3)
        weight = self.get(f"{attention}.pool_{which}.weight", width, 1, 1, 3, 3)
        maps = F.conv3d(maps, weight, stride=(1, stride, stride), padding=(0, 1, 1), groups=width)
        x = maps.reshape(batch, heads, width, -1).transpose(2, 3)
        return self.norm(f"{attention}.norm_{which}", x)

    def positions(self, attention, q, keys):
        """What relative positions add to the scores."""
        batch, heads, queries, width = q.shape
        q_side, k_side = round(queries ** 0.5), round(keys ** 0.5)
        rows = 2 * max(q_side, k_side) - 1
        k_ratio = max(q_side / k_side, 1.0)
        apart = torch.arange(q_side)[:, None] * max(k_side / q_side, 1.0)
        apart = apart - torch.arange(k_side)[None, :] * k_ratio + (k_side - 1) * k_ratio
        tables = [self.get(f"{attention}.rel_pos_{axis}", rows, width)[apart.long()] for axis in "hw"]
        grid = q.reshape(batch, heads, q_side, q_side, width)
        down = torch.einsum("bnijc,ikc->bnijk", grid, tables[0])
        along = torch.einsum("bnijc,jkc->bnijk", grid, tables[1])
        return (down[..., :, None] + along[..., None, :]).reshape(batch, heads, queries, keys)

    def attention(self, name, x, heads, layer):
        batch, tokens, width = x.shape
        if self.separate:
            qkv = [self.linear(f"{name}.{which}", x, width) for which in "qkv"]
        else:
            qkv = self.linear(f"{name}.qkv", x, 3 * width).chunk(3, -1)
        q, k, v = (t.reshape(batch, tokens, heads, -1).transpose(1, 2) for t in qkv)
        if layer is not None:
            transition, stride = layer
            if transition or self.v2:
                q = self.pool(name, "q", q, 2 if transition else 1)
            k, v = self.pool(name, "k", k, stride), self.pool(name, "v", v, stride)
        scores = q @ k.transpose(-2, -1) * (width // heads) ** -0.5
        if self.v2:
            scores = scores + self.positions(name, q, k.shape[2])
        mixed = scores.softmax(-1) @ v
        if self.v2:
            mixed = mixed + q
        return self.linear(f"{name}.proj", mixed.transpose(1, 2).reshape(batch, -1, width), width)

    def mlp(self, name, x, hidden):
        return self.linear(f"{name}.fc2", F.gelu(self.linear(f"{name}.fc1", x, hidden)), x.shape[-1])

    def f(self, name, x, heads, layer):
        return self.attention(f"{name}.F.attn", self.norm(f"{name}.F.norm", x), heads, layer)

    def g(self, name, x):
        return self.mlp(f"{name}.G.mlp", self.norm(f"{name}.G.norm", x), 4 * x.shape[-1])

    def transition(self, name, x, heads, layer):
        x = x + self.mlp(f"{name}.pre_q_fuse.fuse_fn", x, 2 * x.shape[-1])
        folded = x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)
        shortcut = self.pool(f"{name}.F.attn", "q", folded, 2).transpose(1, 2)
        shortcut = shortcut.reshape(len(x), -1, x.shape[-1])
        x = shortcut + self.f(name, x, heads, layer)
        return x + self.g(name, x)

    def __call__(self, images):
        kernel, stride, padding = self.patch
        weight = self.get("patch_embed.proj.weight", self.width, 3, *([1] * self.time), kernel, kernel)
        bias = self.get("patch_embed.proj.bias", self.width)
        if self.time:
            x = F.conv3d(images[:, :, None], weight, bias, (1, stride, stride), (0, padding, padding))
        else:
            x = F.conv2d(images, weight, bias, stride, padding)
        x = x.flatten(2).transpose(1, 2)
        if not self.v2:
            x = x + self.get("pos_embed", 1, *x.shape[1:])
        heads, streams = self.heads, None
        for number, layer in enumerate(self.layers):
            name = f"rev_backbone.layers.{number}"
            if layer is not None and layer[0]:
                heads *= 2
                x, streams = self.transition(name, torch.cat(streams, -1), heads, layer), None
                continue
            x1, x2 = streams or (x, x)
            y1 = x1 + self.f(name, x2, heads, layer)
            streams = y1, x2 + self.g(name, y1)
        x = self.norm("norm", torch.cat(streams, -1)).mean(1)
        return self.linear("head.projection", x, CLASSES)


def run_tool(*arguments):
    """What the tool exits with (0, or the message of sys.exit). In this process: to import torch takes seconds."""
    with mock.patch.object(sys, "argv", [TOOL, *arguments]), contextlib.redirect_stdout(io.StringIO()):
        try:
            runpy.run_path(TOOL, run_name="__main__")
        except SystemExit as end:
            return end.code
    return 0


def convert(state, folder):
    checkpoint, weights = os.path.join(folder, "c.pyth"), os.path.join(folder, "w.safetensors")
    torch.save({"epoch": 3, "model_state": state, "cfg": "TRAIN: {}"}, checkpoint)
    assert run_tool(checkpoint, weights) == 0
    return weights


def compare(probe, family, net, size, settings):
    images = torch.randn(2, 3, size, size)
    scores = net(images)
    cotangent = torch.randn_like(scores)
    (scores * cotangent).sum().backward()
    with tempfile.TemporaryDirectory() as folder:
        expected = load_file(convert({n: p.grad for n, p in net.state.items()}, folder))
        weights = convert({n: p.detach() for n, p in net.state.items()}, folder)
        source, target = os.path.join(folder, "in"), os.path.join(folder, "out")
        save_file({"input": images, "cotangent": cotangent}, source)
        words = [f"{k}={v}" for k, v in {**settings, "image_size": size, "classes": CLASSES}.items()]
        subprocess.run([probe, family, source, target, f"weights={weights}", *words], check=True)
        got = load_file(target)
    error = (got["scores"] - scores.detach()).abs().max().item()
    # A key's bias has gradient zero: ratios are taken to the largest gradient there.
    largest = max(g.norm().item() for g in expected.values())
    worst = max((got[f"gradient.{name}"] - gradient).norm().item() /
                max(gradient.norm().item(), 1e-4 * largest) for name, gradient in expected.items())
    print(f"{family} {settings}: scores {error:.1e}, gradients {worst:.1e}")
    assert error <= SCORES, error
    assert worst <= GRADIENTS, worst


def vit_case(probe, width, heads, depth, patch, size, **options):
    net = Net(width, heads, [None] * depth, (patch, patch, 0), **options)
    compare(probe, "rev_vit", net, size, dict(patch=patch, width=width, depth=depth, heads=heads,
                                              mlp_hidden=4 * width, eps=1e-6))


def mvit_case(probe, width, heads, depths, size, v2, **options):
    layers, stride = [], 4
    for stage, depth in enumerate(depths):
        if stage > 0:
            stride = max(stride // 2, 1)
        layers += [(stage > 0 and i == 0, stride) for i in range(depth)]
    net = Net(width, heads, layers, (7, 4, 3), v2=v2, **options)
    compare(probe, "rev_mvit", net, size,
            dict(width=width, heads=heads, version=2 if v2 else 1,
                 **{f"depth{i}": depth for i, depth in enumerate(depths)}))


def refused(content, reason):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "c.pyth")
        if isinstance(content, bytes):
            with open(path, "wb") as file:
                file.write(content)
        elif content is not None:
            torch.save(content, path)
        target = os.path.join(folder, "w")
        said = run_tool(path, target)
        assert not os.path.exists(target), said
        assert isinstance(said, str) and said.startswith(path) and reason in said, said


def refused_as_a_program():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "missing.pyth")
        run = subprocess.run([sys.executable, TOOL, path, os.path.join(folder, "w")], capture_output=True, text=True)
        assert run.returncode == 1 and run.stderr.startswith(path), run
        assert "Traceback" not in run.stderr, run.stderr


class Unsafe:
    def __reduce__(self):
        return print, ("code in the checkpoint was run",)


def refusals():
    some = torch.zeros(1)
    refused(None, "no such file")
    refused(b"not a checkpoint", "not a checkpoint that torch reads safely")
    refused({"model_state": Unsafe()}, "not a checkpoint that torch reads safely")
    refused([some], 'no "model_state"')
    refused({"state_dict": {}}, 'no "model_state"')
    refused({"model_state": {"a": 1}}, "more than tensors")
    refused({"model_state": {"layers.0.norm1.weight": some}}, "not a ViT or MViT of SlowFast")
    refused({"model_state": {"blocks.0.norm1.weight": some}}, "without cls_token")
    refused({"model_state": {"blocks.0.attn.pool_q.weight": some}}, "here is MViTv2, with relative positions")
    net = Net(8, 2, [None] * 2, (4, 4, 0))
    net(torch.randn(1, 3, 8, 8))
    state = {name: value.detach() for name, value in net.state.items()}
    refused({"model_state": {**state, "cls_token": some}}, "no place here:\n  cls_token")
    refused({"model_state": {**state, "rev_backbone.layers.3.F.norm.bias": some}}, "layers are missing")
    refused({"model_state": {**state, "patch_embed.proj.weight": torch.zeros(8, 3, 2, 4, 4)}}, "2 frames")
    without = dict(state)
    del without["rev_backbone.layers.1.F.attn.k.weight"]
    refused({"model_state": without}, "only some of its linear layers")
    refused({"model_state": {**state, "rev_backbone.layers.1.F.attn.pool_k.weight": some}}, "fusion MLP")


def main():
    probe = sys.argv[1]
    torch.manual_seed(0)
    vit_case(probe, 24, 3, 4, 8, 32)
    vit_case(probe, 32, 4, 3, 4, 20, time=True)
    vit_case(probe, 24, 3, 2, 8, 24, separate=False)
    mvit_case(probe, 16, 1, [1, 2, 3], 64, v2=False)
    mvit_case(probe, 16, 2, [2, 2, 2, 2], 64, v2=False, time=True)
    mvit_case(probe, 16, 1, [1, 3, 2], 64, v2=True, separate=False)
    refusals()
    refused_as_a_program()


main()
