import torch
import torch.nn.functional as F
from torch import nn

from . import parts

EPS = 1e-5
MASKED = -100.0


def relative_index(size):
    """The row of the bias table for each query and key of a window."""
    place = torch.arange(size)
    distance = place[:, None] - place[None, :] + size - 1
    rows = distance[:, None, :, None] * (2 * size - 1) + distance[None, :, None, :]
    return rows.flatten()


class WindowAttention(nn.Module):
    """F: attention within windows of the map, every other block's map rolled by half a window."""

    def __init__(self, state, name, side, shifted, attention):
        super().__init__()
        self.norm = parts.norm_like(state, f"{name}.norm", EPS)
        self.qkv = parts.linear_like(state, f"{name}.qkv")
        self.proj = parts.linear_like(state, f"{name}.proj")
        self.relative_position_bias_table = parts.empty_like(state, f"{name}.relative_position_bias_table")
        rows, self.heads = self.relative_position_bias_table.shape
        self.side, self.size = side, (round(rows ** 0.5) + 1) // 2
        self.padded = -(-side // self.size) * self.size
        self.shift = self.size // 2 if shifted and side > self.size else 0
        self.attention = attention
        self.register_buffer("index", relative_index(self.size), persistent=False)
        self.register_buffer("mask", self.shift_mask(), persistent=False)

    def shift_mask(self):
        """(windows, 1, tokens, tokens): where rolling brought together what are no neighbours."""
        if self.shift == 0:
            return None
        along = torch.zeros(self.padded)
        along[-self.size:] = 1
        along[-self.shift:] = 2
        region = (3 * along[:, None] + along[None, :]).view(1, self.padded, self.padded, 1)
        region = self.windows(region).view(-1, self.size ** 2)
        return MASKED * (region[:, None, :, None] != region[:, None, None, :]).float()

    def windows(self, maps):
        batch, _, _, width = maps.shape
        across = self.padded // self.size
        cut = maps.view(batch, across, self.size, across, self.size, width)
        return cut.permute(0, 1, 3, 2, 4, 5).reshape(batch, across ** 2, self.size ** 2, width)

    def maps(self, windows):
        batch, _, _, width = windows.shape
        across = self.padded // self.size
        cut = windows.view(batch, across, across, self.size, self.size, width)
        return cut.permute(0, 1, 3, 2, 4, 5).reshape(batch, self.padded, self.padded, width)

    def bias(self):
        """(1 or windows, heads, tokens, tokens)."""
        table = self.relative_position_bias_table.index_select(0, self.index)
        bias = table.view(1, self.size ** 2, self.size ** 2, self.heads).permute(0, 3, 1, 2)
        return bias if self.mask is None else bias + self.mask

    def attend(self, q, k, v):
        """On (batch, windows, heads, tokens, head)."""
        bias = self.bias()
        if self.attention == "matmul":
            return parts.matmul(q, k, v, bias)
        if bias.size(0) > 1:
            bias = bias.expand(q.size(0), *bias.shape).flatten(0, 1)
        mixed = parts.sdpa(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), bias.contiguous())
        return mixed.unflatten(0, q.shape[:2])

    def forward(self, x):
        batch, tokens, width = x.shape
        maps = self.norm(x).view(batch, self.side, self.side, width)
        if self.padded > self.side:
            margin = self.padded - self.side
            maps = F.pad(maps, (0, 0, 0, margin, 0, margin))
        if self.shift:
            maps = maps.roll((-self.shift, -self.shift), (1, 2))
        windows = self.windows(maps)
        qkv = self.qkv(windows).view(*windows.shape[:3], 3, self.heads, -1).permute(3, 0, 1, 4, 2, 5)
        mixed = self.attend(*qkv.unbind(0)).transpose(2, 3).reshape(windows.shape)
        maps = self.maps(mixed)
        if self.shift:
            maps = maps.roll((self.shift, self.shift), (1, 2))
        if self.padded > self.side:
            maps = maps[:, :self.side, :self.side]
        return self.proj(maps.reshape(batch, tokens, width))


class Fusion(nn.Module):
    def __init__(self, state, name):
        super().__init__()
        self.fc1 = parts.linear_like(state, f"{name}.fc1")
        self.fc2 = parts.linear_like(state, f"{name}.fc2")

    def forward(self, streams):
        return self.fc2(F.gelu(self.fc1(streams)))


class Merging(nn.Module):
    """Every 2 x 2 tokens become one of twice the width."""

    def __init__(self, state, name, side):
        super().__init__()
        self.norm = parts.norm_like(state, f"{name}.norm", EPS)
        self.reduction = parts.linear_like(state, f"{name}.reduction")
        self.side = side

    def forward(self, x):
        batch, _, width = x.shape
        half = (self.side + 1) // 2
        maps = x.view(batch, self.side, self.side, width)
        if self.side % 2:
            maps = F.pad(maps, (0, 0, 0, 1, 0, 1))
        groups = maps.view(batch, half, 2, half, 2, width).permute(0, 1, 3, 4, 2, 5)
        return self.reduction(self.norm(groups.reshape(batch, half * half, 4 * width)))


class Stage(nn.Module):
    def __init__(self, state, name, side, attention, plain):
        super().__init__()
        block = parts.PlainBlock if plain else parts.Block
        self.blocks = parts.Stack(
            block(WindowAttention(state, f"{name}.blocks.{i}.f", side, i % 2 == 1, attention),
                        parts.Mlp(state, f"{name}.blocks.{i}.g", EPS))
            for i in range(parts.count(state, f"{name}.blocks")))
        if f"{name}.downsample.norm.weight" in state:
            self.fusion = nn.Identity() if plain else Fusion(state, f"{name}.fusion")
            self.downsample = Merging(state, f"{name}.downsample", side)


class Network(parts.Network):
    def __init__(self, state, batch, attention):
        super().__init__()
        images = batch["input"]
        self.patch = round((state["patch_embed.weight"].size(1) / images.size(1)) ** 0.5)
        self.patch_embed = parts.linear_like(state, "patch_embed")
        self.patch_norm = parts.norm_like(state, "patch_norm", EPS)
        self.stages = nn.ModuleList()
        side = images.size(2) // self.patch
        for i in range(parts.count(state, "stages")):
            self.stages.append(Stage(state, f"stages.{i}", side, attention, parts.one_stream(state)))
            side = (side + 1) // 2
        self.norm = parts.norm_like(state, "norm", EPS)
        self.head = parts.linear_like(state, "head")

    def forward(self, images):
        x = self.patch_norm(self.patch_embed(parts.patches(images, self.patch)))
        for stage in self.stages:
            x = torch.cat(stage.blocks(x), -1)
            if stage is not self.stages[-1]:
                x = stage.downsample(stage.fusion(x))
        return self.head(self.norm(x).mean(1))
