import torch
import torch.nn.functional as F
from torch import nn

from . import parts

EPS = 1e-6
KV_STRIDES = (4, 2, 1, 1)  # of the stages
PATCH_STRIDE = 4


def pooled_side(side, stride):
    return (side - 1) // stride + 1


def table_rows(queries, keys):
    """The row of a table of relative positions for each pair of coordinates."""
    i, last = torch.arange(queries)[:, None], keys - 1 - torch.arange(keys)[None, :]
    rows = (i * keys + last * queries) // keys if queries >= keys else i * keys // queries + last
    return rows.flatten()


class Conv(nn.Module):
    def __init__(self, state, name, stride):
        super().__init__()
        self.weight = parts.empty_like(state, f"{name}.weight")
        self.bias = parts.empty_like(state, f"{name}.bias") if f"{name}.bias" in state else None
        self.stride = stride

    def forward(self, maps):
        groups = maps.size(1) // self.weight.size(1)
        padding = self.weight.size(2) // 2
        return F.conv2d(maps, self.weight, self.bias, self.stride, padding, groups=groups)


class PoolingAttention(nn.Module):
    """F: queries, keys and values of each head are maps, convolved and normed."""

    def __init__(self, state, name, side, q_stride, kv_stride, attention):
        super().__init__()
        self.norm = parts.norm_like(state, f"{name}.norm", EPS)
        self.qkv = parts.linear_like(state, f"{name}.qkv")
        self.proj = parts.linear_like(state, f"{name}.proj")
        for letter, stride in (("q", q_stride), ("k", kv_stride), ("v", kv_stride)):
            setattr(self, f"pool_{letter}", Conv(state, f"{name}.pool_{letter}", stride))
            setattr(self, f"norm_{letter}", parts.norm_like(state, f"{name}.norm_{letter}", EPS))
        self.rel_pos_h = parts.empty_like(state, f"{name}.rel_pos_h")
        self.rel_pos_w = parts.empty_like(state, f"{name}.rel_pos_w")
        self.side, self.attention = side, attention
        self.head = self.rel_pos_h.size(1)
        self.heads = self.proj.in_features // self.head
        self.q_side, self.kv_side = pooled_side(side, q_stride), pooled_side(side, kv_stride)
        self.register_buffer("rows", table_rows(self.q_side, self.kv_side), persistent=False)

    def pool(self, maps, conv, norm):
        """(maps, side, side, head) -> the same, smaller. A convolution in channels-last order. The norm is in
        float32, as autocast has it on GPUs: in bf16 the gradient of its bias was seen to be half wrong."""
        return norm(conv(maps.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).float())

    def to_maps(self, tokens):
        """(..., batch, tokens, heads * head) -> (..., batch * heads, side, side, head)."""
        batch = tokens.size(0)
        split = tokens.view(batch, self.side ** 2, -1, self.heads, self.head).permute(2, 0, 3, 1, 4)
        return split.reshape(-1, batch * self.heads, self.side, self.side, self.head)

    def to_tokens(self, maps):
        split = maps.reshape(-1, self.heads, self.q_side ** 2, self.head)
        return split.transpose(1, 2).reshape(split.size(0), self.q_side ** 2, -1)

    def pool_as_queries(self, tokens):
        return self.to_tokens(self.pool(self.to_maps(tokens)[0], self.pool_q, self.norm_q))

    def position_scores(self, q, table, axis):
        """q (maps, side, side, head) by the rows of its coordinate: (maps, side, side, keys)."""
        rows = table.index_select(0, self.rows).view(self.q_side, self.kv_side, self.head)
        lines = q.movedim(axis, 0).reshape(self.q_side, -1, self.head)
        scores = torch.bmm(lines, rows.transpose(1, 2))
        return scores.view(self.q_side, q.size(0), self.q_side, -1).movedim(0, axis)

    def mix(self, q, k, v):
        rows = self.position_scores(q, self.rel_pos_h, 1).unsqueeze(-1)
        columns = self.position_scores(q, self.rel_pos_w, 2).unsqueeze(-2)
        q, k, v = q.flatten(1, 2), k.flatten(1, 2), v.flatten(1, 2)
        if self.attention == "sdpa":
            bias = (rows + columns).reshape(q.size(0), 1, q.size(1), k.size(1))
            q, k, v = (t.unsqueeze(1) for t in (q, k, v))
            return parts.sdpa(q, k, v, bias).squeeze(1)
        scores = torch.bmm(q, (k * self.head ** -0.5).transpose(1, 2))
        square = scores.view(-1, self.q_side, self.q_side, self.kv_side, self.kv_side)
        scores = (square + rows + columns).view(scores.shape)
        return torch.bmm(scores.softmax(-1), v)

    def attend(self, normed):
        q, k, v = self.to_maps(self.qkv(normed)).unbind(0)
        q = self.pool(q, self.pool_q, self.norm_q)
        k = self.pool(k, self.pool_k, self.norm_k)
        v = self.pool(v, self.pool_v, self.norm_v)
        return self.proj(self.to_tokens(self.mix(q, k, v) + q.flatten(1, 2)))

    def forward(self, x):
        return self.attend(self.norm(x))


class Transition(nn.Module):
    """The first block of a stage, which halves the map."""

    def __init__(self, state, name, side, kv_stride, attention):
        super().__init__()
        self.f = PoolingAttention(state, f"{name}.f", side, 2, kv_stride, attention)
        self.g = parts.Mlp(state, f"{name}.g", EPS)

    def forward(self, x):
        h = self.f.pool_as_queries(x) + self.f(x)
        return h + self.g(h)


class Fusion(nn.Module):
    def __init__(self, state, name):
        super().__init__()
        self.fc1 = parts.linear_like(state, f"{name}.fc1")
        self.fc2 = parts.linear_like(state, f"{name}.fc2")

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(x)))


class Stage(nn.Module):
    def __init__(self, state, name, number, side, attention):
        super().__init__()
        if number > 0:
            self.fusion = Fusion(state, f"{name}.fusion")
            self.transition = Transition(state, f"{name}.transition", side, KV_STRIDES[number], attention)
            side = pooled_side(side, 2)
        self.blocks = parts.Stack(
            parts.Block(PoolingAttention(state, f"{name}.blocks.{i}.f", side, 1, KV_STRIDES[number], attention),
                        parts.Mlp(state, f"{name}.blocks.{i}.g", EPS))
            for i in range(parts.count(state, f"{name}.blocks")))


class Network(parts.Network):
    def __init__(self, state, batch, attention):
        super().__init__()
        self.patch_embed = Conv(state, "patch_embed", PATCH_STRIDE)
        side = pooled_side(batch["input"].size(2), PATCH_STRIDE)
        self.stages = nn.ModuleList()
        for i in range(parts.count(state, "stages")):
            self.stages.append(Stage(state, f"stages.{i}", i, side, attention))
            side = pooled_side(side, 2) if i > 0 else side
        self.norm = parts.norm_like(state, "norm", EPS)
        self.head = parts.linear_like(state, "head")

    def forward(self, images):
        images = images.contiguous(memory_format=torch.channels_last)
        x = self.patch_embed(images).permute(0, 2, 3, 1).flatten(1, 2)
        for i, stage in enumerate(self.stages):
            if i > 0:
                x = self.between(stage.transition, self.between(stage.fusion, x))
            if len(stage.blocks) > 0:
                x = torch.cat(stage.blocks(x), -1)
            elif i + 1 < len(self.stages):
                x = torch.cat((x, x), -1)
        return self.head(self.norm(x).mean(1))
