#!/usr/bin/env python3
"""Converts a checkpoint of SlowFast (.pyth) to weights for pareprop: of Rev-ViT or Rev-MViT for the reversible networks,
of ViT or MViTv2 for images for the plain ones.

    convert_slowfast.py CHECKPOINT.pyth WEIGHTS.safetensors

Needs torch and safetensors. See docs/weights.md for what is renamed to what.
"""

import argparse
import re
import sys

import torch
from safetensors.torch import save_file


class NotConvertible(Exception):
    pass


# Names that do not depend on the layer.
OUTSIDE = {
    "cls_token": "cls_token",
    "patch_embed.proj.weight": "patch_embed.weight",
    "patch_embed.proj.bias": "patch_embed.bias",
    "pos_embed": "pos_embed",
    "norm.weight": "norm.weight",
    "norm.bias": "norm.bias",
    "head.projection.weight": "head.weight",
    "head.projection.bias": "head.bias",
}

def inside(f, g):
    """Names inside of a layer; `f` and `g` begin those of attention and MLP. Queries, keys and values are joined."""
    return {
        f"{f}attn.qkv": "f.qkv",
        f"{f}attn.proj": "f.proj",
        **{f"{f}attn.{part}_{which}": f"f.{part}_{which}" for part in ("pool", "norm") for which in "qkv"},
        f"{f}attn.rel_pos_h": "f.rel_pos_h",
        f"{f}attn.rel_pos_w": "f.rel_pos_w",
        f"{g}mlp.fc1": "g.fc1",
        f"{g}mlp.fc2": "g.fc2",
    }


# How a layer's name begins, what begins the names of its attention, and the names inside of it.
REVERSIBLE = ("rev_backbone.layers.", "F.", inside("F.", "G.") | {
    "F.norm": "f.norm",
    "G.norm": "g.norm",
    "pre_q_fuse.fuse_fn.fc1": "fusion.fc1",
    "pre_q_fuse.fuse_fn.fc2": "fusion.fc2",
})
PLAIN = ("blocks.", "", inside("", "") | {
    "norm1": "f.norm",
    "norm2": "g.norm",
    "proj": "shortcut",
})


def joined_attention(layer, begin):
    """Joins the linear layers of queries, keys and values into one."""
    parts = {which: {k: layer.pop(f"{begin}attn.{which}{k}", None) for k in (".weight", ".bias")}
             for which in "qkv"}
    for kind in (".weight", ".bias"):
        tensors = [parts[which][kind] for which in "qkv"]
        if all(t is not None for t in tensors):
            layer[f"{begin}attn.qkv{kind}"] = torch.cat(tensors, 0)
        elif any(t is not None for t in tensors):
            raise NotConvertible("a layer has only some of its linear layers q, k and v")
    weight = layer.get(f"{begin}attn.qkv.weight")
    if weight is not None and f"{begin}attn.qkv.bias" not in layer:
        layer[f"{begin}attn.qkv.bias"] = weight.new_zeros(len(weight))  # QKV_BIAS False
    return layer


def without_time(tensor, name):
    """A convolution over one frame as one over an image."""
    if tensor.dim() != 5:
        return tensor
    if tensor.shape[2] != 1:
        raise NotConvertible(f"{name} spans {tensor.shape[2]} frames: a model of videos, not of images")
    return tensor[:, :, 0]


def stages_of(numbers, transitions):
    """{layer: where it is in RevMViT}, a transition beginning each stage but the first."""
    places, stage, block = {}, 0, 0
    for number in numbers:
        if number in transitions:
            stage, block = stage + 1, 0
            places[number] = (f"stages.{stage}.transition.", f"stages.{stage}.")
        else:
            places[number] = (f"stages.{stage}.blocks.{block}.", None)
            block += 1
    return places


def plain_stages_of(layers):
    """{layer: where it is in PlainMViT}. A layer that widens what it adds to begins a stage by its attention, or ends one
    by its MLP."""
    places, stage, block = {}, 0, 0
    for number in sorted(layers):
        layer = layers[number]
        widens = "proj.weight" in layer
        widens_first = widens and len(layer["attn.qkv.weight"]) != 3 * len(layer["norm1.weight"])
        if widens_first:
            stage, block = stage + 1, 0
        places[number] = (f"stages.{stage}.blocks.{block}.", None)
        block += 1
        if widens and not widens_first:
            stage, block = stage + 1, 0
    return places


def places_of(layers, pooling, reversible):
    """{layer: what its names begin with, and those of its fusion}"""
    if not pooling:
        return {number: (f"blocks.{number}.", None) for number in layers}
    if not reversible:
        needed = ("attn.qkv.weight", "norm1.weight", "attn.rel_pos_h")
        if any(name not in layer for layer in layers.values() for name in needed):
            raise NotConvertible("a layer without " + ", ".join(needed[:-1]) + " or " + needed[-1] + ": the plain MViT "
                                 "here is MViTv2, with relative positions")
        return plain_stages_of(layers)
    transitions = {n for n, layer in layers.items() if "pre_q_fuse.fuse_fn.fc1.weight" in layer}
    if not transitions:
        raise NotConvertible("no layer has a fusion MLP to begin a stage with: RevMViT is the network of "
                             "MVIT.REV.PRE_Q_FUSION concat_linear_2 only")
    return stages_of(sorted(layers), transitions)


def converted(state):
    """A state of SlowFast under our names."""
    reversible = any(name.startswith(REVERSIBLE[0]) for name in state)
    begin, attention, names = REVERSIBLE if reversible else PLAIN
    pattern = re.compile(re.escape(begin) + r"(\d+)\.(.+?)(\.weight|\.bias)?")
    result, layers, unknown = {}, {}, []
    for name, tensor in state.items():
        match = pattern.fullmatch(name)
        if match:
            layers.setdefault(int(match[1]), {})[match[2] + (match[3] or "")] = tensor
        elif name in OUTSIDE:
            result[OUTSIDE[name]] = tensor
        else:
            unknown.append(name)
    if not layers:
        raise NotConvertible(
            "no tensor is named rev_backbone.layers.* or blocks.*: not a ViT or MViT of SlowFast")
    if sorted(layers) != list(range(len(layers))):
        raise NotConvertible(f"layers are missing: there are {sorted(layers)}")

    layers = {number: joined_attention(layer, attention) for number, layer in layers.items()}
    pooling = any(f"{attention}attn.pool_" in name for layer in layers.values() for name in layer)
    places = places_of(layers, pooling, reversible)
    if (reversible or pooling) and "cls_token" in state:
        unknown.append("cls_token")
    if not reversible and not pooling and "cls_token" not in state:
        raise NotConvertible("a plain ViT without cls_token: the one here gives its scores by that token")

    for number, layer in layers.items():
        here, outer = places[number]
        for name, tensor in layer.items():
            stem, dot, kind = name.rpartition(".")
            ours = names.get(name) or (names.get(stem) and f"{names[stem]}.{kind}")
            if ours is None or (ours.startswith("fusion.") and outer is None):
                unknown.append(f"{begin}{number}.{name}")
            else:
                result[(outer if ours.startswith("fusion.") else here) + ours] = tensor
    if unknown:
        raise NotConvertible("tensors that have no place here:\n  " + "\n  ".join(sorted(unknown)))

    for name in ("patch_embed.weight", *(n for n in result if ".pool_" in n)):
        if name not in result:
            raise NotConvertible("patch_embed.proj.weight is missing")
        result[name] = without_time(result[name], name)
    if not pooling:  # patches do not overlap: a linear layer
        result["patch_embed.weight"] = result["patch_embed.weight"].flatten(1)
    return {name: tensor.contiguous().clone() for name, tensor in result.items()}


def read(path):
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise NotConvertible("no such file") from None
    except Exception as error:  # torch has no one type for files that it cannot read
        raise NotConvertible(f"not a checkpoint that torch reads safely: {error}") from None
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model_state"), dict):
        raise NotConvertible('no "model_state" in it: not a checkpoint of SlowFast')
    state = checkpoint["model_state"]
    if not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise NotConvertible('"model_state" holds more than tensors')
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", metavar="CHECKPOINT.pyth")
    parser.add_argument("weights", metavar="WEIGHTS.safetensors")
    arguments = parser.parse_args()
    try:
        tensors = converted(read(arguments.checkpoint))
    except NotConvertible as error:
        sys.exit(f"{arguments.checkpoint}: {error}")
    save_file(tensors, arguments.weights)
    print(f"{arguments.weights}: {len(tensors)} tensors, "
          f"{sum(t.numel() for t in tensors.values()):,} parameters")


if __name__ == "__main__":
    main()
