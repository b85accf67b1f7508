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
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from . import _core
from ._step import Loss, arguments_of, run_step


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _flops(operator: Any, args: Any, kwargs: Any, result: Any) -> float:
    packet = operator._overloadpacket
    if packet is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        return float(sdpa_flop_count(*(x.shape for x in args[:3])))
    formula = flop_registry.get(packet)
    return float(formula(*args, **kwargs, out_val=result)) if formula else 0.0


def _is_convolution(operator: Any) -> bool:
    return operator._overloadpacket in (torch.ops.aten.convolution, torch.ops.aten.convolution_backward)


def _scratch(operator: Any, args: Any, result: Any) -> int:
    """What an operator takes of memory besides its result, by running it once on zeros."""

    def zeros(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).zero_()

    with unset_fake_temporarily():
        given = tree_map(zeros, args)
        peak = _core.peak_while(lambda: operator(*given))
    return peak - sum(x.nbytes for x in _tensors(result))


class Seen:
    """What was seen of one block: bytes are live ones of the whole step."""

    def __init__(self) -> None:
        self.kept = 0
        """More after its forward passes than before them."""
        self.flops = 0.0
        self.before = 0
        """When its backward pass began."""
        self.peak = 0
        """From then until that of the next block began."""


class _Counting(TorchDispatchMode):
    """Counts the bytes that are live between operators: on the CPU only convolutions take more besides."""

    def __init__(self, scratch: dict[Any, int]) -> None:
        super().__init__()
        self._scratch = scratch
        self.peak = 0
        self.seen: dict[str, Seen] = {}
        """Of the blocks that have run back, in that order."""
        self.above = 0
        """The peak before the first of them."""
        self._forward: dict[str, Seen] = {}
        self._now: Optional[Seen] = None
        self._window: Optional[Seen] = None

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Optional[dict[str, Any]] = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        self.count(self._scratch_of(operator, args, result) if _is_convolution(operator) else 0)
        if self._now is not None:
            self._now.flops += _flops(operator, args, kwargs or {}, result)
        return result

    def _scratch_of(self, operator: Any, args: Any, result: Any) -> int:
        key = (operator, *((x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else str(x) for x in args))
        if key not in self._scratch:
            self._scratch[key] = _scratch(operator, args, result)
        return self._scratch[key]

    def count(self, scratch: int = 0) -> None:
        live = _core.live_bytes(meta=True) + scratch
        self.peak = max(self.peak, live)
        if self._window is not None:
            self._window.peak = max(self._window.peak, live)
        else:
            self.above = max(self.above, live)

    def watch(self, name: str, block: torch.nn.Module) -> Callable[[], None]:
        """Notes what a block does; the result ends that."""

        def before(module: torch.nn.Module, args: Any) -> None:
            self._now = self._forward.setdefault(name, Seen())
            self._now.kept -= _core.live_bytes(meta=True)

        def after(module: torch.nn.Module, args: Any, output: Any) -> None:
            assert self._now is not None
            self._now.kept += _core.live_bytes(meta=True)
            self._now = None
            trained = [x for x in _tensors(output) if x.requires_grad]
            if trained:
                register_multi_grad_hook(trained, lambda gradient: self._begin_backward(name), mode="any")

        handles = [block.register_forward_pre_hook(before), block.register_forward_hook(after)]

        def end() -> None:
            for handle in handles:
                handle.remove()

        return end

    def _begin_backward(self, name: str) -> None:
        self._window = self._forward[name]
        self._window.before = _core.live_bytes(meta=True)
        self.seen.pop(name, None)  # called twice: the lower call is the one that counts
        self.seen[name] = self._window


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
        self.live = _core.live_bytes(meta=True) - self._base
        """Bytes of weights, state of the optimizer and sample: always there."""

    def _shape(self, value: Any) -> Any:
        return self._mode.from_tensor(value) if isinstance(value, Tensor) else value

    def run(self, blocks: Sequence[str]) -> tuple[int, int, dict[str, Seen]]:
        """The peak of a step, that above the blocks, and what was seen of each block that has a gradient, from the
        output on. Bytes are those of the step alone."""
        counting = _Counting(self._scratch)
        self.model.zero_grad(set_to_none=True)
        ends = [counting.watch(name, self.model.get_submodule(name)) for name in blocks]
        try:
            with counting, self._mode:
                run_step(self.model, self._sample, self._loss)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise ValueError(
                "fit: the model looks at values in its forward pass, and a step on shapes alone has none (torch says: "
                f"{error}). Leave out the argument of the sample that it looks at, or plan without it"
            ) from error
        finally:
            for end in ends:
                end()
            self.model.zero_grad(set_to_none=True)
        for seen in counting.seen.values():
            seen.before -= self._base
            seen.peak -= self._base
        return counting.peak - self._base, counting.above - self._base, counting.seen
