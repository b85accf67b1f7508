#!/usr/bin/env python3
"""Converts weights that torch.save() wrote (.bin, .pt, .pth, .ckpt) to a safetensors file, with the names they have.

    convert_pickle.py FILE [FILE ...] OUT.safetensors

Several files are the parts of one checkpoint. No code in them is run. Needs torch and safetensors.
"""

import argparse
import sys

import torch
from safetensors.torch import save_file

# Under which trainers keep the weights of a network, beside the state of their optimizer.
CONTAINERS = ("state_dict", "model_state_dict", "model_state", "model", "module")


class NotConvertible(Exception):
    pass


def read(path):
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise NotConvertible("no such file") from None
    except Exception as error:  # torch has no one type for files that it cannot read
        raise NotConvertible(f"not a file that torch reads safely: {error}") from None


def is_state(value):
    return isinstance(value, dict) and bool(value) and all(isinstance(v, torch.Tensor) for v in value.values())


def tensors_of(content):
    """The weights of the network in what a file holds."""
    while not is_state(content):
        inside = [content[key] for key in CONTAINERS if isinstance(content, dict) and isinstance(content.get(key), dict)]
        if not inside:
            raise NotConvertible("it holds no weights: expected names and tensors, or these under one of "
                                 + ", ".join(CONTAINERS))
        content = inside[0]
    if all(name.startswith("module.") for name in content):  # of a network that several processes trained
        content = {name.removeprefix("module."): tensor for name, tensor in content.items()}
    if "head.projection.weight" in content or any(name.startswith("rev_backbone.") for name in content):
        raise NotConvertible("a network of SlowFast: convert it with convert_slowfast.py")
    return content


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", metavar="FILE", nargs="+")
    parser.add_argument("out", metavar="OUT.safetensors")
    arguments = parser.parse_args()
    tensors = {}
    for path in arguments.files:
        try:
            found = tensors_of(read(path))
        except NotConvertible as error:
            sys.exit(f"{path}: {error}")
        twice = sorted(tensors.keys() & found.keys())
        if twice:
            sys.exit(f"{path}: {twice[0]} is in another file too; expected parts of one checkpoint")
        tensors |= found
    # Tensors that share memory are written one by one.
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, arguments.out,
              metadata={"format": "pt"})
    print(f"{arguments.out}: {len(tensors)} tensors, {sum(t.numel() for t in tensors.values()):,} numbers")


if __name__ == "__main__":
    main()
