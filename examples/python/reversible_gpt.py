"""A reversible GPT with rotary positions, trained on the characters of a novel."""

import argparse
import pathlib

import torch
from torch import nn
from torch.nn import functional as F

import pareprop

TEXT = pathlib.Path(__file__).parents[2] / "data" / "persuasion.txt"


def rotated(x):  # (batch, heads, tokens, width of a head)
    tokens, half = x.shape[-2], x.shape[-1] // 2
    angles = torch.arange(tokens)[:, None] / 10000 ** (torch.arange(half) / half)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.drop = pareprop.nn.Dropout(0.1)  # drawn again in the recomputation

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        return self.drop(self.out(y.transpose(1, 2).flatten(-2)))


def mlp(width):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Gpt(nn.Module):
    def __init__(self, characters, width=64, heads=4, depth=6):
        super().__init__()
        self.embed = nn.Embedding(characters, width)
        self.stack = pareprop.Stack([(Attention(width, heads), mlp(width)) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(2 * width), nn.Linear(2 * width, characters))

    def forward(self, ids):
        x = self.embed(ids)
        return self.head(torch.cat(self.stack(x, x), dim=-1))


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
steps = parser.parse_args().steps
text = TEXT.read_text(encoding="utf-8")
letters = sorted(set(text))
data = torch.tensor([letters.index(letter) for letter in text[:100_000]])
torch.manual_seed(0)
model = Gpt(len(letters))
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
for step in range(steps):
    starts = torch.randint(len(data) - 129, (16,))
    rows = torch.stack([data[start : start + 129] for start in starts])
    loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step + 1 == steps:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
