"""One of two processes, started by distributed_test.py: its losses are those of one process with the whole batch."""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn

import pareprop
from branches import blocks


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Linear(4, 8)
        self.stack = pareprop.Stack(blocks(3), "pareprop")
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        h = self.embed(x)
        y1, y2 = self.stack(h, h)
        return self.head(y1 + y2)


def train(net, batches, wrap=lambda step: step()):
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    losses = []
    for x in batches:
        loss = nn.functional.mse_loss(net(x), x.flip(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def mean(losses):
    dist.all_reduce(losses)
    return losses / dist.get_world_size()


def whole(mine):
    """The batches of which both processes have a half."""
    parts = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(parts, mine.contiguous())
    return torch.cat(parts, 1)


def check(losses, expected):
    assert (mean(losses) - expected).abs().max() < 1e-5, (losses, expected)


def same_in_two_parts(wrapped, batch, *no_sync):
    """Two micro-batches, the first without sending, are the same as one batch."""

    def gradient(parts):
        wrapped.zero_grad()
        for i, x in enumerate(parts):
            with contextlib.ExitStack() as scopes:
                for scope in no_sync if i + 1 < len(parts) else ():
                    scopes.enter_context(scope())
                (nn.functional.mse_loss(wrapped(x), x) / len(parts)).backward()
        return [parameter.grad.clone() for parameter in wrapped.parameters()]

    for a, b in zip(gradient([batch]), gradient(list(batch.chunk(2)))):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def ddp(rank, mine, expected):
    wrapped = nn.parallel.DistributedDataParallel(Net())
    check(train(wrapped, mine), expected)
    wrapped = nn.parallel.DistributedDataParallel(Net())
    same_in_two_parts(wrapped, mine[0], wrapped.no_sync)
    optimizer = pareprop.optim.SGD(wrapped.parameters(), 0.1)
    try:
        with pareprop.optim.update_inside(optimizer, wrapped):
            raise AssertionError("gradients would not be averaged, and nothing was said")
    except ValueError as error:
        assert "DistributedDataParallel" in str(error), error

    def ours():
        return pareprop.models.create("vit_tiny", depths=2, width=48, image_size=32, classes=5)

    images, labels, _ = ours().example(4)

    def losses(model, *batch):
        found = []
        for _ in range(3):
            loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
            model.zero_grad()
            loss.backward()
            found.append(loss.detach())
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
        return torch.stack(found)

    part = slice(2 * rank, 2 * rank + 2)
    wrapped = nn.parallel.DistributedDataParallel(ours())
    check(losses(wrapped, images[part], labels[part]), losses(ours(), images, labels))


def overlap(rank, mine, expected):
    net = Net()
    if rank == 1:  # they must get those of the first process
        nn.init.zeros_(net.stack[0].g.up.weight)
    sending = pareprop.distributed.overlap(net)
    wrapped = nn.parallel.DistributedDataParallel(net)
    check(train(wrapped, mine), expected)

    same_in_two_parts(wrapped, mine[0], wrapped.no_sync, sending.no_sync)
    sending.remove()

    # Frozen blocks at the bottom have no gradients to wait for; those above are averaged all the same.
    def frozen():
        net = Net()
        net.embed.requires_grad_(False)
        net.stack[0].requires_grad_(False)
        return net

    net = frozen()
    sending = pareprop.distributed.overlap(net)
    check(train(nn.parallel.DistributedDataParallel(net), mine), train(frozen(), whole(mine)))
    sending.remove()


class Told(nn.Module):
    """Tells when it is computed again."""

    def __init__(self, inner, events):
        super().__init__()
        self.inner = inner
        self.events = events

    def forward(self, x):
        if torch.is_grad_enabled():
            self.events.append("recovered")
        return self.inner(x)


def order(rank, mine, expected):
    """The gradients of upper blocks are sent before the lowest block is recovered."""
    for mode in ("reprop", "pareprop"):
        events = []
        pairs = blocks(6)
        pairs[0] = (Told(pairs[0][0], events), Told(pairs[0][1], events))
        net = Net()
        net.stack = pareprop.Stack(pairs, plan=pareprop.StackPlan(["reverse"] * 6, overlap=mode == "pareprop", tail=0))
        sending = pareprop.distributed.overlap(net)
        wrapped = nn.parallel.DistributedDataParallel(net)
        send = dist.all_reduce

        def told(*args, **kwargs):
            events.append("sent")
            return send(*args, **kwargs)

        dist.all_reduce = told
        try:
            nn.functional.mse_loss(wrapped(mine[0]), mine[0]).backward()
        finally:
            dist.all_reduce = send
        sending.remove()
        assert events.count("recovered") == 2 and events.count("sent") == 6, events
        # Without lanes a block is recovered when all above it have their gradients, with them two branches ahead.
        first = events.index("recovered")
        assert events[:first].count("sent") >= (5 if mode == "reprop" else 3), (mode, events)


def fsdp(rank, mine, expected):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    net = Net()
    fully_shard(net.stack[0].g, mesh=mesh)
    try:
        net(mine[0])
        raise AssertionError("a part of a stack was sharded, and nothing was said")
    except TypeError as error:
        assert "fully_shard the stack as a whole" in str(error), error
    net = Net()
    fully_shard(net.stack, mesh=mesh)
    fully_shard(net, mesh=mesh)
    check(train(net, mine), expected)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    batches = torch.randn(6, 4, 5, 4)
    expected = train(Net(), batches)
    for way in (ddp, overlap, order, fsdp):
        way(rank, batches.chunk(2, dim=1)[rank], expected)
        print(f"{way.__name__} is good", flush=True)
    dist.barrier()
    # Gloo's threads let go of tensors of Python when they please, also while the interpreter ends, which torch does
    # not survive (pytorch#190489).
    os._exit(0)


if __name__ == "__main__":
    main()
