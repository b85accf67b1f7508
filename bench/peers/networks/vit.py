import torch

from . import parts

EPS = 1e-6


class Network(parts.Network):
    def __init__(self, state, batch, attention, heads):
        super().__init__()
        channels = batch["input"].size(1)
        self.patch = round((state["patch_embed.weight"].size(1) / channels) ** 0.5)
        self.patch_embed = parts.linear_like(state, "patch_embed")
        self.pos_embed = parts.empty_like(state, "pos_embed")
        self.blocks = parts.Stack(
            parts.Block(parts.SelfAttention(state, f"blocks.{i}.f", heads, EPS, attention),
                        parts.Mlp(state, f"blocks.{i}.g", EPS))
            for i in range(parts.count(state, "blocks")))
        self.norm = parts.norm_like(state, "norm", EPS)
        self.head = parts.linear_like(state, "head")

    def forward(self, images):
        x = self.patch_embed(parts.patches(images, self.patch)) + self.pos_embed
        streams = torch.cat(self.blocks(x), -1)
        return self.head(self.norm(streams).mean(1))
