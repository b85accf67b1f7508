#!/usr/bin/env python3
"""Converts a checkpoint of SlowFast's Rev-ViT or Rev-MViT (.pyth) to weights for RevViT or RevMViT.

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
    "patch_embed.proj.weight": "patch_embed.weight",
    "patch_embed.proj.bias": "patch_embed.bias",
    "pos_embed": "pos_embed",
    "norm.weight": "norm.weight",
    "norm.bias": "norm.bias",
    "head.projection.weight": "head.weight",
    "head.projection.bias": "head.bias",
}

# Names inside of a layer; those of queries, keys and values are joined.
INSIDE = {
    "F.norm": "f.norm",
    "F.attn.qkv": "f.qkv",
    "F.attn.proj": "f.proj",
    **{f"F.attn.{part}_{which}": f"f.{part}_{which}" for part in ("pool", "norm") for which in "qkv"},
    "F.attn.rel_pos_h": "f.rel_pos_h",
    "F.attn.rel_pos_w": "f.rel_pos_w",
    "G.norm": "g.norm",
    "G.mlp.fc1": "g.fc1",
    "G.mlp.fc2": "g.fc2",
    "pre_q_fuse.fuse_fn.fc1": "fusion.fc1",
    "pre_q_fuse.fuse_fn.fc2": "fusion.fc2",
}

LAYER = re.compile(r"rev_backbone\.layers\.(\d+)\.(.+?)(\.weight|\.bias)?")


def joined_attention(layer):
    """Joins the linear layers of queries, keys and values into one."""
    parts = {which: {k: layer.pop(f"F.attn.{which}{k}", None) for k in (".weight", ".bias")}
             for which in "qkv"}
    for kind in (".weight", ".bias"):
        tensors = [parts[which][kind] for which in "qkv"]
        if all(t is not None for t in tensors):
            layer[f"F.attn.qkv{kind}"] = torch.cat(tensors, 0)
        elif any(t is not None for t in tensors):
            raise NotConvertible("a layer has only some of its linear layers q, k and v")
    if "F.attn.qkv.weight" in layer and "F.attn.qkv.bias" not in layer:
        layer["F.attn.qkv.bias"] = layer["F.attn.qkv.weight"].new_zeros(
            len(layer["F.attn.qkv.weight"]))  # QKV_BIAS False
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


def converted(state):
    """A state of SlowFast under our names."""
    result, layers, unknown = {}, {}, []
    for name, tensor in state.items():
        match = LAYER.fullmatch(name)
        if match:
            layers.setdefault(int(match[1]), {})[match[2] + (match[3] or "")] = tensor
        elif name in OUTSIDE:
            result[OUTSIDE[name]] = tensor
        else:
            unknown.append(name)
    if not layers:
        raise NotConvertible(
            "no tensor is named rev_backbone.layers.*: not a reversible model of SlowFast (MVIT.REV.ENABLE)")
    if sorted(layers) != list(range(len(layers))):
        raise NotConvertible(f"layers are missing: there are {sorted(layers)}")

    pooling = any(name.startswith("F.attn.pool_") for layer in layers.values() for name in layer)
    transitions = {n for n, layer in layers.items() if "pre_q_fuse.fuse_fn.fc1.weight" in layer}
    if pooling and not transitions:
        raise NotConvertible("no layer has a fusion MLP to begin a stage with: RevMViT is the network of "
                             "MVIT.REV.PRE_Q_FUSION concat_linear_2 only")
    if pooling:
        places = stages_of(sorted(layers), transitions)
    else:
        places = {number: (f"blocks.{number}.", None) for number in layers}

    for number, layer in layers.items():
        here, outer = places[number]
        for name, tensor in joined_attention(layer).items():
            stem, dot, kind = name.rpartition(".")
            ours = INSIDE.get(name) or (INSIDE.get(stem) and f"{INSIDE[stem]}.{kind}")
            if ours is None or (ours.startswith("fusion.") and outer is None):
                unknown.append(f"rev_backbone.layers.{number}.{name}")
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
