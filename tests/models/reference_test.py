"""Plain ViT, Swin and RoBERTa against Hugging Face transformers: weights that transformers saved give
the same scores and gradients here, and those saved here load in transformers. No names are mapped in
this file: the library's own map is what is tested. Usage: reference_test.py PATH_OF_model_probe"""

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
        SwinConfig,
        SwinForImageClassification,
        ViTConfig,
        ViTForImageClassification,
    )
    from transformers.utils import logging
except ImportError:
    print("transformers is not installed: skipped")
    sys.exit(77)

logging.set_verbosity_error()
logging.disable_progress_bar()

SCORES = 1e-5
GRADIENTS = 1e-4


def saved(model, folder):
    """The file that save_pretrained writes."""
    model.save_pretrained(folder)
    return os.path.join(folder, "model.safetensors")


def in_memory(model, folder):
    """A file with the names that the model's state has in memory."""
    path = os.path.join(folder, "state.safetensors")
    save_file({name: value.clone().contiguous() for name, value in model.state_dict().items()}, path)
    return path


def gradients_by_name(model, folder):
    """Gradients under the names of files: those of a model that has them as its weights."""
    holder = type(model)(model.config)
    ours = dict(holder.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            ours[name].copy_(parameter.grad)
    return load_file(saved(holder, folder))


def check_gradients(got, expected):
    # A key's bias has gradient zero: ratios are taken to the largest gradient there.
    largest = max(g.norm().item() for g in expected.values())
    worst, where = 0.0, ""
    for name, gradient in expected.items():
        error = (got[f"gradient.{name}"] - gradient).norm().item()
        relative = error / max(gradient.norm().item(), 1e-4 * largest)
        if not relative <= worst:
            worst, where = relative, name
    assert set(got) == {"scores", *(f"gradient.{name}" for name in expected)}
    assert worst <= GRADIENTS, (where, worst)
    return f"{worst:.1e} ({where})"


def compare(probe, family, model, inputs, call, settings):
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

    words = [f"{key}={value}" for key, value in settings.items()]
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "in"), os.path.join(folder, "out")
        back = os.path.join(folder, "back")
        save_file({"cotangent": cotangent, **inputs}, source)
        expected = gradients_by_name(model, os.path.join(folder, "gradients"))
        for form in (saved, in_memory):
            weights = form(model, os.path.join(folder, "model"))
            files = [f"hugging_face={weights}", f"export={back}"]
            subprocess.run([probe, family, source, target, *words, *files], check=True)
            got = load_file(target)
            difference = (got["scores"] - scores.detach()).abs()
            if "mask" in inputs:
                difference = difference[inputs["mask"]]
            worst = check_gradients(got, expected)
            error = difference.max().item()
            print(f"{family} {settings}, {form.__name__}: scores {error:.1e}, gradients {worst}")
            assert error <= SCORES, error

        # What was saved here loads in transformers, with every bit.
        os.replace(back, os.path.join(folder, "model", "model.safetensors"))
        again, report = type(model).from_pretrained(
            os.path.join(folder, "model"), output_loading_info=True)
        assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        for name, value in model.state_dict().items():
            assert torch.equal(value, again.state_dict()[name]), name


def vit_case(probe, width, depth, heads, hidden, size, patch, batch):
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=depth, num_attention_heads=heads,
        intermediate_size=hidden, image_size=size, patch_size=patch, num_labels=10,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = ViTForImageClassification(config)
    images = torch.randn(batch, 3, size, size)
    compare(probe, "vit", model, {"input": images},
            lambda m: m(images).logits,
            dict(image_size=size, patch=patch, width=width, depth=depth, heads=heads,
                 mlp_hidden=hidden, classes=10, eps=config.layer_norm_eps))


def swin_case(probe, width, depths, heads, window, size, patch, batch):
    config = SwinConfig(
        image_size=size, patch_size=patch, embed_dim=width, depths=depths, num_heads=heads,
        window_size=window, mlp_ratio=4.0, num_labels=10, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, drop_path_rate=0.0)
    model = SwinForImageClassification(config)
    images = torch.randn(batch, 3, size, size)
    stages = {f"depth{i}": depth for i, depth in enumerate(depths)}
    stages |= {f"heads{i}": count for i, count in enumerate(heads)}
    compare(probe, "swin", model, {"input": images},
            lambda m: m(images).logits,
            dict(image_size=size, patch=patch, width=width, window=window, mlp_ratio=4.0, classes=10,
                 eps=config.layer_norm_eps, **stages))


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

    compare(probe, "roberta", model, inputs,
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
    swin_case(probe, 24, [2, 2], [2, 4], 4, 32, 2, 2)  # windows fit the maps of 16 and 8
    swin_case(probe, 24, [2, 2, 1], [2, 4, 8], 4, 44, 2, 3)  # maps of 22, 11, 6: all padded
    swin_case(probe, 32, [1, 3], [4, 4], 5, 52, 4, 2)  # maps of 13 and 7, odd ones merged
    swin_case(probe, 48, [2, 2, 6, 2], [3, 6, 12, 24], 7, 224, 4, 1)  # the shape of Swin-T


main()
