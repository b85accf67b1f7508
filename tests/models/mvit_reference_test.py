"""MViT, ordinary and reversible, against one written from the papers' description in plain PyTorch, one
tap of a convolution and one distance at a time: the same weights give the same scores and gradients.
Usage: mvit_reference_test.py PATH_OF_model_probe"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from fractions import Fraction

import torch

try:
    from safetensors.torch import load_file, save_file
except ImportError:
    print("safetensors is not installed: skipped")
    sys.exit(77)

SCORES = 1e-5
GRADIENTS = 1e-4


@dataclass
class Case:
    size: int
    depths: list
    width: int = 8
    heads: int = 1
    classes: int = 5
    version: int = 2
    reversible: bool = True
    fused: bool = True
    mean_first: bool = False
    widen_in_mlp: bool = False
    eps: float = 1e-6
    kv: list = field(default_factory=lambda: [4, 2, 1, 1])
    transition_kv: list = None

    def widens(self, stage):
        return self.widen_in_mlp and stage + 1 < len(self.depths)

    def settings(self):
        transition_kv = self.transition_kv or self.kv
        return {
            "image_size": self.size, "width": self.width, "heads": self.heads,
            "classes": self.classes, "version": self.version, "concat": int(not self.fused),
            "mean_first": int(self.mean_first),
            "widen_in_mlp": int(self.widen_in_mlp), "eps": self.eps,
            **{f"depth{i}": depth for i, depth in enumerate(self.depths)},
            **{f"kv{i}": self.kv[i] for i in range(len(self.depths))},
            **{f"transition_kv{i}": transition_kv[i] for i in range(len(self.depths))},
        }


class Weights(dict):
    """Makes a weight of the shape it is first asked for."""

    def __call__(self, name, *shape, spread=0.05, around=0.0):
        if name not in self:
            self[name] = (around + spread * torch.randn(*shape)).requires_grad_()
        assert self[name].shape == shape, name
        return self[name]


def linear(w, name, x, out):
    return x @ w(f"{name}.weight", out, x.shape[-1]).T + w(f"{name}.bias", out)


def norm(w, name, x, eps):
    width = x.shape[-1]
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred**2).mean(-1, keepdim=True)
    scaled = centred / torch.sqrt(variance + eps)
    return scaled * w(f"{name}.weight", width, around=1.0) + w(f"{name}.bias", width)


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))


def taps(padded, kernel, stride, side):
    """The inputs that each place of a kernel sees, from (..., height, width, channels)."""
    end = stride * (side - 1) + 1
    for dy in range(kernel):
        for dx in range(kernel):
            yield dy, dx, padded[..., dy:dy + end:stride, dx:dx + end:stride, :]


def pad(x, by, value=0.0):
    return torch.nn.functional.pad(x, (0, 0, by, by, by, by), value=value)


def places(side, kernel, stride):
    return len(range(0, side + 2 * (kernel // 2) - kernel + 1, stride))


def embed(w, images, width):
    x = images.permute(0, 2, 3, 1)
    side = places(x.shape[1], 7, 4)
    weight = w("patch_embed.weight", width, x.shape[-1], 7, 7)
    y = sum(seen @ weight[:, :, dy, dx].T for dy, dx, seen in taps(pad(x, 3), 7, 4, side))
    return y + w("patch_embed.bias", width)


def pool(w, name, letter, maps, stride, eps):
    """A depth-wise convolution and a norm, of maps (batch, heads, height, width, channels)."""
    side = places(maps.shape[-2], 3, stride)
    weight = w(f"{name}.pool_{letter}.weight", maps.shape[-1], 1, 3, 3, spread=0.3)
    y = sum(seen * weight[:, 0, dy, dx] for dy, dx, seen in taps(pad(maps, 1), 3, stride, side))
    return norm(w, f"{name}.norm_{letter}", y, eps)


def max_pool(x):
    side = places(x.shape[1], 3, 2)
    return torch.stack([seen for _, _, seen in taps(pad(x, 1, -torch.inf), 3, 2, side)]).amax(0)


def distance(i, j, queries, keys):
    """Of query i and key j along an axis, from 0; coordinates of the smaller map are stretched."""
    longest = max(queries, keys)
    to_query, to_key = Fraction(longest, queries), Fraction(longest, keys)
    return int(i * to_query - j * to_key + (keys - 1) * to_key)


def split_heads(x, heads):
    batch, side, _, width = x.shape
    return x.reshape(batch, side, side, heads, width // heads).permute(0, 3, 1, 2, 4)


def join_heads(x):
    return x.permute(0, 2, 3, 1, 4).flatten(3)


def attend(w, name, normed, case, width, heads, q_stride, kv_stride):
    head = width // heads
    parts = linear(w, f"{name}.qkv", normed, 3 * width).split(width, -1)
    q, k, v = (split_heads(part, heads) for part in parts)
    if case.version == 2 or q_stride > 1:
        q = pool(w, name, "q", q, q_stride, case.eps)
    k = pool(w, name, "k", k, kv_stride, case.eps)
    v = pool(w, name, "v", v, kv_stride, case.eps)
    queries, keys = q.shape[2], k.shape[2]
    scores = torch.einsum("bnyxc,bnijc->bnyxij", q, k) / head**0.5
    if case.version == 2:
        rows = 2 * max(queries, keys) - 1
        of_height = w(f"{name}.rel_pos_h", rows, head, spread=0.2)
        of_width = w(f"{name}.rel_pos_w", rows, head, spread=0.2)
        by_height, by_width = [], []
        for a in range(queries):
            at = [distance(a, b, queries, keys) for b in range(keys)]
            by_height.append(torch.stack([q[:, :, a] @ of_height[d] for d in at], -1))
            by_width.append(torch.stack([q[:, :, :, a] @ of_width[d] for d in at], -1))
        scores = scores + torch.stack(by_height, 2)[..., :, None]
        scores = scores + torch.stack(by_width, 3)[..., None, :]
    p = scores.flatten(4).softmax(-1).unflatten(4, (keys, keys))
    mixed = torch.einsum("bnyxij,bnijc->bnyxc", p, v)
    if case.version == 2:
        mixed = mixed + q
    return linear(w, f"{name}.proj", join_heads(mixed), width)


def mlp(w, name, x, hidden):
    return linear(w, f"{name}.fc2", gelu(linear(w, f"{name}.fc1", x, hidden)), x.shape[-1])


def f(w, name, x, case, width, heads, kv_stride):
    return attend(w, f"{name}.f", norm(w, f"{name}.f.norm", x, case.eps), case, width, heads, 1,
                  kv_stride)


def g(w, name, x, case):
    return mlp(w, f"{name}.g", norm(w, f"{name}.g.norm", x, case.eps), 4 * x.shape[-1])


def transition(w, name, x, case, width, heads, kv_stride):
    normed = norm(w, f"{name}.f.norm", x, case.eps)
    if x.shape[-1] != width:
        kept = max_pool(linear(w, f"{name}.shortcut", normed, width))
    elif case.reversible and case.fused:
        kept = join_heads(pool(w, f"{name}.f", "q", split_heads(x, heads), 2, case.eps))
    else:
        kept = max_pool(x)
    return kept + attend(w, f"{name}.f", normed, case, width, heads, 2, kv_stride)


def after_attention(w, name, h, case, width, widens):
    if not widens:
        return h + g(w, name, h, case)
    normed = norm(w, f"{name}.g.norm", h, case.eps)
    hidden = gelu(linear(w, f"{name}.g.fc1", normed, 4 * width))
    return (linear(w, f"{name}.shortcut", normed, 2 * width)
            + linear(w, f"{name}.g.fc2", hidden, 2 * width))


def mvit(w, images, case):
    x = embed(w, images, case.width)
    if case.version == 1:
        x = x + w("pos_embed", 1, x.shape[1] ** 2, case.width).view(1, *x.shape[1:])
    for s, depth in enumerate(case.depths):
        stage, width, heads = f"stages.{s}", case.width * 2**s, case.heads * 2**s
        blocks = depth - (s > 0)
        if s > 0:
            kv_stride = (case.transition_kv or case.kv)[s]
            if case.reversible and case.fused:
                x = x + mlp(w, f"{stage}.fusion", x, 2 * width)
            name = f"{stage}.transition" if case.reversible else f"{stage}.blocks.0"
            x = transition(w, name, x, case, width, heads, kv_stride)
            x = after_attention(w, name, x, case, width, case.widens(s) and blocks == 0)
        if case.reversible:
            if blocks == 0 and s + 1 == len(case.depths):
                break
            x1 = x2 = x
            for i in range(blocks):
                name = f"{stage}.blocks.{i}"
                x1 = x1 + f(w, name, x2, case, width, heads, case.kv[s])
                x2 = x2 + g(w, name, x1, case)
            x = torch.cat([x1, x2], -1)
        else:
            for i in range(depth - blocks, depth):
                name = f"{stage}.blocks.{i}"
                x = x + f(w, name, x, case, width, heads, case.kv[s])
                x = after_attention(w, name, x, case, width, case.widens(s) and i + 1 == depth)
    tokens = x.flatten(1, 2)
    if case.mean_first:
        result = norm(w, "norm", tokens.mean(1), case.eps)
    else:
        result = norm(w, "norm", tokens, case.eps).mean(1)
    return linear(w, "head", result, case.classes)


def compare(probe, case):
    w = Weights()
    images = torch.randn(2, 3, case.size, case.size)
    scores = mvit(w, images, case)
    cotangent = torch.randn_like(scores)
    (scores * cotangent).sum().backward()

    given = {f"weight.{name}": weight.detach() for name, weight in w.items()}
    given |= {"input": images, "cotangent": cotangent}
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "in"), os.path.join(folder, "out")
        save_file(given, source)
        words = [f"{key}={value}" for key, value in case.settings().items()]
        family = "rev_mvit" if case.reversible else "mvit"
        subprocess.run([probe, family, source, target, *words], check=True)
        got = load_file(target)
    assert set(got) == {"scores", *(f"gradient.{name}" for name in w)}

    error = (got["scores"] - scores.detach()).abs().max().item()
    # A key's bias has gradient zero: ratios are taken to the largest gradient there.
    largest = max(weight.grad.norm().item() for weight in w.values())
    worst, where = 0.0, ""
    for name, weight in w.items():
        difference = (got[f"gradient.{name}"] - weight.grad).norm().item()
        relative = difference / max(weight.grad.norm().item(), 1e-4 * largest)
        if not relative <= worst:
            worst, where = relative, name
    print(f"{case}: {len(w)} weights, scores {error:.1e}, gradients {worst:.1e} ({where})")
    assert error <= SCORES, error
    assert worst <= GRADIENTS, (where, worst)


def main():
    probe = sys.argv[1]
    torch.manual_seed(0)
    # Maps that halve evenly, and such that do not.
    for size, depths in ((64, [2, 3, 3, 3]), (50, [2, 3, 4, 2]), (29, [3, 3])):
        for version in (2, 1):
            compare(probe, Case(size, depths, version=version, reversible=False))
            compare(probe, Case(size, depths, version=version, reversible=False, widen_in_mlp=True))
            compare(probe, Case(size, depths, version=version))
            compare(probe, Case(size, depths, version=version, fused=False))
    compare(probe, Case(45, [2, 3, 3], width=12, heads=2))
    compare(probe, Case(45, [2, 3, 3], width=12, heads=2, reversible=False))
    # A stage that is a transition only, at the end and in between; the layout of minREV's network.
    compare(probe, Case(32, [1, 2, 1], fused=False, mean_first=True, eps=1e-5, kv=[2, 2, 1],
                        transition_kv=[1, 1, 1]))
    compare(probe, Case(40, [0, 1, 2], kv=[2, 2, 1]))
    compare(probe, Case(40, [1, 1, 1, 2], reversible=False, widen_in_mlp=True))


main()
