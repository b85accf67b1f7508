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
        plain = "cls_token" in state
        if plain:
            self.cls_token = parts.empty_like(state, "cls_token")
        block = parts.PlainBlock if plain else parts.Block
        self.blocks = parts.Stack(
            block(parts.SelfAttention(state, f"blocks.{i}.f", heads, EPS, attention),
                        parts.Mlp(state, f"blocks.{i}.g", EPS))
            for i in range(parts.count(state, "blocks")))
        self.norm = parts.norm_like(state, "norm", EPS)
        self.head = parts.linear_like(state, "head")

    def forward(self, images):
        x = self.patch_embed(parts.patches(images, self.patch))
        if hasattr(self, "cls_token"):
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
            return self.head(self.norm(self.blocks(x)[0][:, 0]))
        streams = torch.cat(self.blocks(x + self.pos_embed), -1)
        return self.head(self.norm(streams).mean(1))
