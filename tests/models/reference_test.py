"""Plain ViT and RoBERTa against Hugging Face transformers: the same weights give the same scores and
gradients. Usage: reference_test.py PATH_OF_model_probe"""

import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

try:
    from transformers import (
        RobertaPreLayerNormConfig,
        RobertaPreLayerNormForMaskedLM,
        ViTConfig,
        ViTForImageClassification,
    )
except ImportError:
    print("transformers is not installed: skipped")
    sys.exit(77)

SCORES = 1e-5
GRADIENTS = 1e-4


def join(parts):
    return torch.cat(parts, 0)


def linear_and_norm(ours, theirs):
    """Maps weight and bias of a layer: {our name: (how to make it, their names)}."""
    return {f"{ours}.{kind}": [f"{theirs}.{kind}"] for kind in ("weight", "bias")}


def qkv(ours, theirs, names):
    return {f"{ours}.{kind}": [f"{theirs}.{n}.{kind}" for n in names] for kind in ("weight", "bias")}


def vit_names(depth):
    names = {
        "cls_token": ["vit.embeddings.cls_token"],
        "pos_embed": ["vit.embeddings.position_embeddings"],
        **linear_and_norm("patch_embed", "vit.embeddings.patch_embeddings.projection"),
        **linear_and_norm("norm", "vit.layernorm"),
        **linear_and_norm("head", "classifier"),
    }
    for i in range(depth):
        f, g, their = f"blocks.{i}.f", f"blocks.{i}.g", f"vit.layers.{i}"
        names |= {
            **linear_and_norm(f"{f}.norm", f"{their}.layernorm_before"),
            **qkv(f"{f}.qkv", f"{their}.attention", ("q_proj", "k_proj", "v_proj")),
            **linear_and_norm(f"{f}.proj", f"{their}.attention.o_proj"),
            **linear_and_norm(f"{g}.norm", f"{their}.layernorm_after"),
            **linear_and_norm(f"{g}.fc1", f"{their}.mlp.fc1"),
            **linear_and_norm(f"{g}.fc2", f"{their}.mlp.fc2"),
        }
    return names


def roberta_names(depth):
    body = "roberta_prelayernorm"
    names = {
        "embeddings.word": [f"{body}.embeddings.word_embeddings.weight"],
        "embeddings.position": [f"{body}.embeddings.position_embeddings.weight"],
        "embeddings.type": [f"{body}.embeddings.token_type_embeddings.weight"],
        **linear_and_norm("embeddings.norm", f"{body}.embeddings.LayerNorm"),
        **linear_and_norm("norm", f"{body}.LayerNorm"),
        **linear_and_norm("head_dense", "lm_head.dense"),
        **linear_and_norm("head_norm", "lm_head.layer_norm"),
        "head_bias": ["lm_head.bias"],
    }
    for i in range(depth):
        f, g, their = f"blocks.{i}.f", f"blocks.{i}.g", f"{body}.encoder.layer.{i}"
        names |= {
            **linear_and_norm(f"{f}.norm", f"{their}.attention.LayerNorm"),
            **qkv(f"{f}.qkv", f"{their}.attention.self", ("query", "key", "value")),
            **linear_and_norm(f"{f}.proj", f"{their}.attention.output.dense"),
            **linear_and_norm(f"{g}.norm", f"{their}.intermediate.LayerNorm"),
            **linear_and_norm(f"{g}.fc1", f"{their}.intermediate.dense"),
            **linear_and_norm(f"{g}.fc2", f"{their}.output.dense"),
        }
    return names


def compare(probe, family, model, names, inputs, call, settings):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.train()  # dropout is 0 in these configurations
    scores = call(model)
    cotangent = torch.randn_like(scores)
    if "mask" in inputs:
        cotangent *= inputs["mask"][..., None]
    (scores * cotangent).sum().backward()
    parameters = dict(model.named_parameters(remove_duplicate=False))

    def ours(name, of):
        tensor = join([of(parameters[their]) for their in names[name]])
        return tensor.flatten(1).contiguous() if name == "patch_embed.weight" else tensor.contiguous()

    given = {f"weight.{name}": ours(name, lambda p: p.detach()).clone() for name in names}
    given |= {"cotangent": cotangent, **inputs}
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "in"), os.path.join(folder, "out")
        save_file(given, source)
        words = [f"{key}={value}" for key, value in settings.items()]
        subprocess.run([probe, family, source, target, *words], check=True)
        got = load_file(target)
    kept = inputs.get("mask")
    difference = (got["scores"] - scores.detach()).abs()
    if kept is not None:
        difference = difference[kept]
    worst_score = difference.max().item()
    # A key's bias has gradient zero: ratios are taken to the largest gradient there.
    expected = {name: ours(name, lambda p: p.grad) for name in names}
    largest = max(g.norm().item() for g in expected.values())
    worst, where = 0.0, ""
    for name, gradient in expected.items():
        error = (got[f"gradient.{name}"] - gradient).norm().item()
        relative = error / max(gradient.norm().item(), 1e-4 * largest)
        if relative > worst:
            worst, where = relative, name
    print(f"{family} {settings}: scores {worst_score:.1e}, gradients {worst:.1e} ({where})")
    assert set(got) == {"scores", *(f"gradient.{name}" for name in names)}
    assert worst_score <= SCORES, worst_score
    assert worst <= GRADIENTS, (where, worst)


def vit_case(probe, width, depth, heads, hidden, size, patch, batch):
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=depth, num_attention_heads=heads,
        intermediate_size=hidden, image_size=size, patch_size=patch, num_labels=10,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = ViTForImageClassification(config)
    images = torch.randn(batch, 3, size, size)
    compare(probe, "vit", model, vit_names(depth), {"input": images},
            lambda m: m(images).logits,
            dict(image_size=size, patch=patch, width=width, depth=depth, heads=heads,
                 mlp_hidden=hidden, classes=10, eps=config.layer_norm_eps))


def roberta_case(probe, width, depth, heads, hidden, length, batch, padded):
    config = RobertaPreLayerNormConfig(
        vocab_size=211, hidden_size=width, num_hidden_layers=depth, num_attention_heads=heads,
        intermediate_size=hidden, max_position_embeddings=66, type_vocab_size=1, pad_token_id=1,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-5)
    model = RobertaPreLayerNormForMaskedLM(config)
    ids = torch.randint(2, 211, (batch, length))
    mask = torch.ones(batch, length, dtype=torch.bool)
    if padded:
        for row in range(batch):
            mask[row, length - 1 - 3 * row:] = False
    ids[~mask] = 1
    inputs = {"input": ids} | ({"mask": mask} if padded else {})

    compare(probe, "roberta", model, roberta_names(depth), inputs,
            lambda m: m(input_ids=ids, attention_mask=mask.long()).logits,
            dict(vocabulary=211, positions=66, length=length, width=width, depth=depth, heads=heads,
                 mlp_hidden=hidden, eps=1e-5))


def main():
    probe = sys.argv[1]
    torch.manual_seed(0)
    vit_case(probe, 48, 3, 3, 192, 32, 8, 2)
    vit_case(probe, 64, 5, 4, 200, 48, 16, 3)
    vit_case(probe, 192, 12, 3, 768, 64, 16, 2)
    roberta_case(probe, 48, 3, 4, 192, 20, 3, padded=False)
    roberta_case(probe, 48, 3, 4, 192, 20, 3, padded=True)
    roberta_case(probe, 96, 7, 6, 384, 64, 2, padded=True)


main()
