"""Gradients of stacks are sent to other processes while lower blocks are still being recovered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor

from ._stack import Stack, WatchHandle

__all__ = ["Overlap", "overlap"]


class Overlap:
    """Averages the gradients of stacks block by block, inside the backward pass. Made by `overlap`."""

    def __init__(self, model: torch.nn.Module, process_group: Optional[Any]) -> None:
        self._group = process_group
        self._sync = True
        self._under_way: list[tuple[Any, Tensor, list[Tensor]]] = []
        self._watches: list[WatchHandle] = []
        self._stacks: list[Stack] = []
        ignored: list[str] = []
        for path, stack in model.named_modules():
            if not isinstance(stack, Stack):
                continue
            ignored += [f"{path}.{name}".lstrip(".") for name, _ in stack.named_parameters()]
            self._watches += [stack.on_block_gradients(self._send), stack.watch(lambda tasks: self._receive())]
            stack._sends_gradients = True
            self._stacks.append(stack)
            for parameter in stack.parameters():
                dist.broadcast(parameter.detach(), 0, group=process_group)
        if not ignored:
            raise ValueError("overlap: the model has no pareprop.Stack")
        ddp = torch.nn.parallel.DistributedDataParallel
        ddp._set_params_and_buffers_to_ignore_for_model(model, ignored)  # type: ignore[no-untyped-call]

    def _send(self, block: int, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        if not self._sync:
            return
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients):
                if parameter.grad is not None:  # of backward passes inside no_sync()
                    gradient.add_(parameter.grad)
                    parameter.grad = None
            if gradients:
                flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
                flat /= dist.get_world_size(self._group)
                self._under_way.append((dist.all_reduce(flat, group=self._group, async_op=True), flat, gradients))

    @torch.no_grad()
    def _receive(self) -> None:
        """At the end of the backward pass of a stack."""
        for work, flat, gradients in self._under_way:
            work.wait()
            sizes = [gradient.numel() for gradient in gradients]
            for gradient, values in zip(gradients, torch.split(flat, sizes)):
                gradient.copy_(values.view_as(gradient))
        self._under_way = []

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only accumulate; the next one outside sends the sum. Use DDP's own no_sync() too."""
        self._sync = False
        try:
            yield
        finally:
            self._sync = True

    def remove(self) -> None:
        """Ends it. A DistributedDataParallel that was made with it must not be used any more."""
        for watch in self._watches:
            watch.remove()
        for stack in self._stacks:
            stack._sends_gradients = False


def overlap(model: torch.nn.Module, process_group: Optional[Any] = None) -> Overlap:
    """Lets the stacks of a model send their gradients themselves, while lower blocks are still being recovered.

    DistributedDataParallel works with a stack as it is, but gets all gradients of the stack at its end. Call this
    before you wrap the model: the weights of the stacks become those of the first process, and DDP sees to the rest.

        pareprop.distributed.overlap(model)
        model = torch.nn.parallel.DistributedDataParallel(model)
    """
    return Overlap(model, process_group)
