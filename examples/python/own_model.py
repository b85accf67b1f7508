"""A reversible transformer of one's own: any pair of modules is a block."""

import argparse

import torch
from torch import nn

import pareprop


class Attention(nn.Module):  # norm inside, no residual inside, output as large as the input
    def __init__(self, width, heads=4):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        x = self.norm(x)
        return self.attend(x, x, x, need_weights=False)[0]


def mlp(width):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
stack = pareprop.Stack([(Attention(64), mlp(64)) for _ in range(12)])
optimizer = torch.optim.AdamW(stack.parameters(), 1e-3)
x = torch.randn(8, 64, 64)
for step in range(parser.parse_args().steps):
    y1, y2 = stack(x, x)  # both streams begin with the same values
    loss = nn.functional.mse_loss(y1 + y2, x.flip(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}, drift {stack.drift.worst:.1e}")
