"""Training in several processes:  torchrun --nproc-per-node=2 two_processes.py

Gradients of a block are sent while the blocks below it are still being recovered.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn

import pareprop


def mlp(width):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed, self.head = nn.Linear(16, width), nn.Linear(width, 16)
        self.stack = pareprop.Stack([(mlp(width), mlp(width)) for _ in range(6)])

    def forward(self, x):
        h = self.embed(x)
        y1, y2 = self.stack(h, h)
        return self.head(y1 + y2)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
dist.init_process_group("gloo")
model = Net()
pareprop.distributed.overlap(model)  # leave it out, and DDP sends the gradients of a stack at its end
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
torch.manual_seed(dist.get_rank())
for step in range(parser.parse_args().steps):
    x = torch.randn(32, 16)
    loss = nn.functional.mse_loss(model(x), x.flip(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"loss {loss.item():.4f}")
dist.barrier()  # Gloo's threads have time to let go of what was sent (pytorch#190489)
dist.destroy_process_group()
