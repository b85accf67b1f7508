"""Training steps on shapes only, of a model whose blocks are ordinary modules: what each block keeps and takes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.autograd.graph import register_multi_grad_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import CheckpointError
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from . import _core
from ._step import Loss, arguments_of, run_step


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _flops(operator: Any, args: Any, kwargs: Any, result: Any) -> float:
    packet = operator._overloadpacket
    if packet is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        return float(sdpa_flop_count(*(x.shape for x in args[:3])))  # type: ignore[no-untyped-call]
    formula = flop_registry.get(packet)
    return float(formula(*args, **kwargs, out_val=result)) if formula else 0.0


# On the CPU others take next to no memory besides their results.
_TAKES_SCRATCH = (
    torch.ops.aten.convolution,
    torch.ops.aten.convolution_backward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward,
)


def _scratch(operator: Any, args: Any, kwargs: Any, result: Any) -> int:
    """What an operator takes of memory besides its result, by running it once on zeros."""

    def zeros(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).zero_()

    with unset_fake_temporarily():
        given, named = tree_map(zeros, (args, kwargs))
        peak = _core.peak_while(lambda: operator(*given, **named))
    return peak - sum(x.nbytes for x in _tensors(result))


class Seen:
    """What was seen of one block: bytes are live ones of the whole step."""

    def __init__(self) -> None:
        self.kept = 0
        """More after its forward passes than before them."""
        self.flops = 0.0
        self.forward_peak = 0
        """From its forward pass on until that of the next block."""
        self.before = 0
        """When its backward pass began."""
        self.peak = 0
        """From then on until that of the next block."""


class Step:
    """What was seen of a training step."""

    def __init__(self) -> None:
        self.peak = 0
        self.below = 0
        """The peak before the first block."""
        self.above = 0
        """The peak between the forward pass of the last block and its backward pass."""
        self.blocks: dict[str, Seen] = {}
        """Those that have a gradient, from the output on: as they ran back."""


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that are live between operators, and what an operator takes besides."""

    def __init__(self, base: int, scratch: dict[Any, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.step = Step()
        self._base = base
        self._scratch = scratch
        self._forward: dict[str, Seen] = {}
        self._now: Optional[Seen] = None
        """The block whose forward pass is under way."""
        self._last: Optional[Seen] = None
        """The one before it."""
        self._back: Optional[Seen] = None
        """The one whose backward pass has begun last."""

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Optional[dict[str, Any]] = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        takes = operator._overloadpacket in _TAKES_SCRATCH
        self._count(self._scratch_of(operator, args, kwargs or {}, result) if takes else 0)
        if self._now is not None:
            # Where there are no products, what is written tells how long an operator takes.
            written = sum(x.numel() for x in _tensors(result))
            self._now.flops += _flops(operator, args, kwargs or {}, result) + written
        return result

    def _live(self) -> int:
        return _core.live_bytes(meta=True) - self._base

    def _scratch_of(self, operator: Any, args: Any, kwargs: Any, result: Any) -> int:
        given = (*args, *kwargs.values())
        key = (operator, *((x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else str(x) for x in given))
        if key not in self._scratch:
            self._scratch[key] = _scratch(operator, args, kwargs, result)
        return self._scratch[key]

    def _count(self, scratch: int) -> None:
        live = self._live() + scratch
        self.step.peak = max(self.step.peak, live)
        if self._back is not None:
            self._back.peak = max(self._back.peak, live)
        elif self._now is not None:
            self._now.forward_peak = max(self._now.forward_peak, live)
        elif self._last is not None:
            self.step.above = max(self.step.above, live)
        else:
            self.step.below = max(self.step.below, live)

    def watch(self, name: str, block: torch.nn.Module) -> Callable[[], None]:
        """Notes what a block does; the result ends that."""

        def before(module: torch.nn.Module, args: Any) -> None:
            if self._last is not None:  # what was taken to lie above all blocks lies above that one
                self._last.forward_peak = max(self._last.forward_peak, self.step.above)
                self.step.above = 0
            self._now = self._forward.setdefault(name, Seen())
            self._now.kept -= self._live()

        def after(module: torch.nn.Module, args: Any, output: Any) -> None:
            assert self._now is not None
            self._now.kept += self._live()
            self._now, self._last = None, self._now
            trained = [x for x in _tensors(output) if x.requires_grad]
            if trained:
                register_multi_grad_hook(trained, lambda gradient: self._begin_backward(name), mode="any")

        handles = [block.register_forward_pre_hook(before), block.register_forward_hook(after)]

        def end() -> None:
            for handle in handles:
                handle.remove()

        return end

    def _begin_backward(self, name: str) -> None:
        self._back = self._forward[name]
        self._back.before = self._live()
        self.step.blocks.pop(name, None)  # called twice: the lower call is the one that counts
        self.step.blocks[name] = self._back


class DryStep:
    """Runs training steps of a copy of the model that has shapes and no memory. Each operator chooses its kernel as on
    the CPU."""

    def __init__(self, model: torch.nn.Module, sample: Any, loss: Loss, copies: int) -> None:
        _core.install_meta_meter()
        self._base = _core.live_bytes(meta=True)
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        memo: dict[int, Any] = {}
        for tensor in (*model.parameters(), *model.buffers()):
            fake: Tensor = self._mode.from_tensor(tensor.detach())
            if isinstance(tensor, torch.nn.Parameter):
                fake = torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
            memo[id(tensor)] = fake
        self.model = copy.deepcopy(model, memo)
        args, kwargs = arguments_of(sample)
        self._sample: Any = {key: self._shape(value) for key, value in kwargs.items()} or tuple(map(self._shape, args))
        self._loss = loss
        self._scratch: dict[Any, int] = {}
        weights = [weight.detach() for weight in self.model.parameters() if weight.requires_grad]
        with self._mode:
            self._state = [torch.empty_like(weight) for weight in weights for _ in range(copies)]
        self.lasting = _core.live_bytes(meta=True) - self._base
        """Bytes of weights, state of the optimizer and sample: always there."""

    def _shape(self, value: Any) -> Any:
        return self._mode.from_tensor(value) if isinstance(value, Tensor) else value

    def run(self, blocks: Sequence[str]) -> Step:
        """A training step, and what was seen of these blocks."""
        counting = _Counting(self._base, self._scratch)
        self.model.zero_grad(set_to_none=True)
        ends = [counting.watch(name, self.model.get_submodule(name)) for name in blocks]
        try:
            with counting, self._mode:
                run_step(self.model, self._sample, self._loss)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise ValueError(
                "fit: the model looks at values in its forward pass, and a step on shapes alone has none (torch says: "
                f"{error}). Leave out the argument of the sample that it looks at"
            ) from error
        except CheckpointError as error:
            raise ValueError(
                "fit: a block does not compute the same when it is computed again: it changes something outside of "
                "itself, such as a list or a cache that it adds to. Turn that off for training, or name other blocks "
                f"(torch says: {error})"
            ) from error
        finally:
            for end in ends:
                end()
            self.model.zero_grad(set_to_none=True)
        return counting.step
