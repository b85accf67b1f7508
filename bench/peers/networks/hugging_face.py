"""The ordinary network of the same size from Hugging Face transformers, with weights of its own."""

import torch.nn.functional as F
from torch import nn

from . import SETTINGS, family, parts


class Network(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def prepare(self, batch):
        return (batch["input"],), batch["target"].flatten()

    def loss(self, inputs, targets):
        scores = self.inner(*inputs).logits
        return F.cross_entropy(scores.flatten(0, -2).float(), targets)


def vit(state, batch, heads):
    from transformers import ViTConfig, ViTForImageClassification
    hidden, width = state["blocks.0.g.fc1.weight"].shape
    channels, size = batch["input"].shape[1:3]
    return ViTForImageClassification(ViTConfig(
        hidden_size=width, num_hidden_layers=parts.count(state, "blocks"), num_attention_heads=heads,
        intermediate_size=hidden, image_size=size, num_channels=channels,
        patch_size=round((state["patch_embed.weight"].size(1) / channels) ** 0.5),
        num_labels=state["head.bias"].numel(), hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0))


def swin(state, batch):
    from transformers import SwinConfig, SwinForImageClassification
    channels, size = batch["input"].shape[1:3]
    stages = range(parts.count(state, "stages"))
    tables = [state[f"stages.{i}.blocks.0.f.relative_position_bias_table"] for i in stages]
    return SwinForImageClassification(SwinConfig(
        image_size=size, num_channels=channels, embed_dim=state["patch_norm.bias"].numel(),
        patch_size=round((state["patch_embed.weight"].size(1) / channels) ** 0.5),
        depths=[parts.count(state, f"stages.{i}.blocks") for i in stages],
        num_heads=[table.size(1) for table in tables],
        window_size=max((round(table.size(0) ** 0.5) + 1) // 2 for table in tables),
        num_labels=state["head.bias"].numel(), hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, drop_path_rate=0.0))


def roberta(state, batch, heads):
    from transformers import RobertaPreLayerNormConfig, RobertaPreLayerNormForMaskedLM
    hidden, width = state["blocks.0.g.fc1.weight"].shape
    return RobertaPreLayerNormForMaskedLM(RobertaPreLayerNormConfig(
        vocab_size=state["head_bias"].numel(), hidden_size=width, num_attention_heads=heads,
        num_hidden_layers=parts.count(state, "blocks"), intermediate_size=hidden,
        max_position_embeddings=state["embeddings.position"].size(0), type_vocab_size=1,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


MAKERS = {"vit": vit, "swin": swin, "roberta": roberta}


def make(model, state, batch):
    return Network(MAKERS[family(model)](state, batch, **SETTINGS[model])).train()
