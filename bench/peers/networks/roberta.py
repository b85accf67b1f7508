import torch
import torch.nn.functional as F
from torch import nn

from . import parts

EPS = 1e-5
PADDING = 1
NOT_SCORED = -100


class Embeddings(nn.Module):
    def __init__(self, state, name):
        super().__init__()
        self.word = parts.empty_like(state, f"{name}.word")
        self.position = parts.empty_like(state, f"{name}.position")
        # Not by assignment: modules have a method of this name.
        self._parameters["type"] = parts.empty_like(state, f"{name}.type")
        self.norm = parts.norm_like(state, f"{name}.norm", EPS)

    def forward(self, ids):
        present = ids.ne(PADDING).long()
        positions = present.cumsum(1) * present + PADDING
        x = F.embedding(ids, self.word, PADDING) + F.embedding(positions, self.position, PADDING)
        return self.norm(x + self._parameters["type"])


class Network(parts.Network):
    """Without padding in the batch. Scores are made at scored positions only."""

    def __init__(self, state, batch, attention, heads):
        super().__init__()
        self.embeddings = Embeddings(state, "embeddings")
        block = parts.PlainBlock if parts.one_stream(state) else parts.Block
        self.blocks = parts.Stack(
            block(parts.SelfAttention(state, f"blocks.{i}.f", heads, EPS, attention),
                        parts.Mlp(state, f"blocks.{i}.g", EPS))
            for i in range(parts.count(state, "blocks")))
        self.norm = parts.norm_like(state, "norm", EPS)
        self.head_dense = parts.linear_like(state, "head_dense")
        self.head_norm = parts.norm_like(state, "head_norm", EPS)
        self.head_bias = parts.empty_like(state, "head_bias")

    def prepare(self, batch):
        targets = batch["target"].flatten()
        scored = targets.ne(NOT_SCORED).nonzero().squeeze(1)
        return (batch["input"], scored), targets[scored]

    def forward(self, ids, scored):
        streams = torch.cat(self.blocks(self.embeddings(ids)), -1)
        h = self.norm(streams.flatten(0, 1).index_select(0, scored))
        h = self.head_norm(F.gelu(self.head_dense(h)))
        return F.linear(h, self.embeddings.word, self.head_bias)
