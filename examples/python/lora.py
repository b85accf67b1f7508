"""LoRA of Hugging Face's PEFT on the linear layers inside a reversible stack: a network that has learned the digits 0 to 4
learns 5 to 9, and a few of its weights are trained."""

import argparse
import pathlib

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional as F

import pareprop

DIGITS = pathlib.Path(__file__).parents[2] / "data" / "digits.csv"


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=64, depth=6, classes=5):
        super().__init__()
        self.embed, self.positions = nn.Linear(4, width), nn.Parameter(torch.randn(16, width) / 10)
        self.stack = pareprop.Stack([(Attention(width, 4), Mlp(width)) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(2 * width), nn.Linear(2 * width, classes))

    def forward(self, images):
        patches = images.unflatten(2, (4, 2)).unflatten(1, (4, 2)).transpose(2, 3).flatten(3).flatten(1, 2)
        x = self.embed(patches) + self.positions
        return self.head(torch.cat(self.stack(x, x), dim=-1).mean(1))


def digits(first):
    rows = [line.split(",") for line in DIGITS.read_text().split() if line[0].isdigit()]
    numbers = torch.tensor([[float(number) for number in row] for row in rows])
    images, labels = numbers[:, :64].view(-1, 8, 8) / 16, numbers[:, 64].long() - first
    wanted = (labels >= 0) & (labels < 5)
    return images[wanted], labels[wanted]


def train(model, images, labels, steps, rate):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], rate)
    for _ in range(steps):
        batch = torch.randint(len(images) * 3 // 4, (32,))
        optimizer.zero_grad()
        F.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        held_out = slice(len(images) * 3 // 4, None)
        return (model(images[held_out]).argmax(1) == labels[held_out]).float().mean().item()


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
steps = parser.parse_args().steps
torch.manual_seed(0)
model = Net()
print(f"digits 0 to 4: {train(model, *digits(0), steps, 1e-3):.1%} right")

config = LoraConfig(r=4, lora_alpha=8, target_modules=["qkv", "proj", "fc1", "fc2"], modules_to_save=["head"])
tuned = get_peft_model(model, config)  # puts adapters into the branches; all else is frozen
tuned.print_trainable_parameters()
print(f"digits 5 to 9 by LoRA: {train(tuned, *digits(5), steps, 3e-3):.1%} right")
print(pareprop.verify(tuned, digits(5)[0][:4]))
