"""Optimizers with small state, and updates inside the backward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Optional, Union

import torch
from torch import Tensor

from . import _core

__all__ = ["Adafactor", "AdamW", "SGD", "update_inside"]

Parameters = Union[Iterable[Tensor], Iterable[dict[str, Any]]]


class _Optimizer(torch.optim.Optimizer):
    """State is kept in C++ and made with the optimizer; `state[parameter]` has the tensors themselves."""

    _kind = ""

    def __init__(self, params: Parameters, defaults: dict[str, Any], state: str, seed: int) -> None:
        self._kept = state
        self._rounding_seed = seed
        self._engines: list[_core.Optimizer] = []
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self._make_engine(len(self.param_groups) - 1)

    def _make_engine(self, number: int) -> None:
        group = self.param_groups[number]
        before = sum(len(other["params"]) for other in self.param_groups[:number])
        named = [(str(before + i), parameter) for i, parameter in enumerate(group["params"])]
        engine = _core.Optimizer(
            self._kind,
            named,
            state=self._kept,
            betas=group.get("betas", (0.9, 0.999)),
            eps=group.get("eps", 1e-8),
            momentum=group.get("momentum", 0.0),
            weight_decay=group["weight_decay"],
            seed=self._rounding_seed,
        )
        self._engines[number:] = [engine]
        group["_made_with"] = self._settings(group)
        parameters = dict(named)
        for key, tensor in engine.state():
            what, _, name = key.rpartition(".")
            self.state[parameters[name]][what] = tensor

    @staticmethod
    def _settings(group: dict[str, Any]) -> dict[str, Any]:
        return {key: group[key] for key in ("betas", "eps", "momentum", "weight_decay") if key in group}

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step of all parameters that have a gradient."""
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        for group, engine, rate in zip(self.param_groups, self._engines, self._rates()):
            engine.update(list(range(len(group["params"]))), rate)
        return result

    def _rates(self) -> list[float]:
        """The learning rates of the parameter groups."""
        for group in self.param_groups:
            self._check_settings(group)
        return [float(group["lr"]) for group in self.param_groups]

    def _check_settings(self, group: dict[str, Any]) -> None:
        if group["_made_with"] != self._settings(group):
            raise ValueError(
                f"{type(self).__name__}: of a parameter group only 'lr' can be changed later; it was made with "
                f"{group['_made_with']}, and now has {self._settings(group)}. Make a new optimizer"
            )

    def state_dict(self) -> dict[str, Any]:
        result = super().state_dict()
        for group in result["param_groups"]:
            del group["_made_with"]
        return result

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what `state_dict()` of the same kind of optimizer gave, in its own precision."""
        groups = state_dict["param_groups"]
        sizes = [len(group["params"]) for group in self.param_groups]
        if [len(group["params"]) for group in groups] != sizes:
            raise ValueError(
                f"{type(self).__name__}: the state_dict has parameter groups of other sizes than the optimizer, {sizes}"
            )
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        numbers = [number for group in groups for number in group["params"]]
        for number, parameter in zip(numbers, parameters):
            own, given = self.state[parameter], state_dict["state"].get(number, {})
            if set(own) != set(given) or any(own[key].shape != given[key].shape for key in own):
                raise ValueError(
                    f"{type(self).__name__}: the state of parameter {number} is {sorted(given)}, expected "
                    f"{sorted(own)} in the shapes of this optimizer: it is of another kind of optimizer or state"
                )
        for number, parameter in zip(numbers, parameters):
            for key, tensor in self.state[parameter].items():
                tensor.copy_(state_dict["state"][number][key])
        for group, given in zip(self.param_groups, groups):
            group["lr"] = given["lr"]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_engines": [], "_kept": self._kept, "_rounding_seed": self._rounding_seed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._engines = []
        kept = {parameter: dict(tensors) for parameter, tensors in self.state.items()}
        for number in range(len(self.param_groups)):
            self._make_engine(number)
        with torch.no_grad():
            for parameter, tensors in kept.items():
                for key, tensor in tensors.items():
                    self.state[parameter][key].copy_(tensor)


class AdamW(_Optimizer):
    """`torch.optim.AdamW` whose moments are kept in `state`: "fp32", "bf16" or "8bit".

    bf16 and 8bit are rounded at random, so that small changes are not lost. Weights may be float32 or bfloat16, which
    are rounded at random too; float64 with state "fp32".
    """

    _kind = "adamw"

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        state: str = "fp32",
        seed: int = 0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}, state, seed)


class SGD(_Optimizer):
    """`torch.optim.SGD` whose momentum is kept in `state`: "fp32", "bf16" or "8bit"."""

    _kind = "sgd"

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        *,
        state: str = "fp32",
        seed: int = 0,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}, state, seed)


class Adafactor(_Optimizer):
    """Adafactor without a first moment: of a matrix it keeps the means over rows and columns, next to nothing.

    The learning rate is used as it is; weight decay is decoupled, as AdamW's.
    """

    _kind = "adafactor"

    def __init__(self, params: Parameters, lr: float = 1e-3, weight_decay: float = 0.0, *, seed: int = 0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay}, "fp32", seed)


def _of_blocks(model: torch.nn.Module) -> list[Tensor]:
    """Parameters whose gradients a stack may give away as soon as they are final: nothing else uses them, they have no
    hooks, and their gradients are not being sent to other processes."""
    from ._stack import Stack

    modules = list(model.named_modules(remove_duplicate=False))
    stacks = {path: module for path, module in modules if isinstance(module, Stack)}
    inside = {id(parameter): parameter for stack in stacks.values() for parameter in stack.parameters()}
    users = Counter(id(parameter) for stack in set(stacks.values()) for parameter in stack.parameters())
    for path, module in modules:
        if any(not stack or path == stack or path.startswith(stack + ".") for stack in stacks):
            continue
        users.update(id(parameter) for parameter in module._parameters.values())
    kept = {id(parameter) for stack in stacks.values() if stack._sends_gradients for parameter in stack.parameters()}
    return [
        parameter
        for key, parameter in inside.items()
        if users[key] == 1 and key not in kept and parameter.requires_grad and not parameter._backward_hooks
    ]


@contextmanager
def update_inside(optimizer: _Optimizer, model: torch.nn.Module) -> Iterator[None]:
    """Within it a backward pass steps the optimizer block by block, as soon as the gradients of a block are final, and
    frees them: the gradients of two blocks are alive instead of those of all weights.

        with pareprop.optim.update_inside(optimizer, model):
            loss = criterion(model(x), y)
            loss.backward()  # the weights have changed; there is nothing to step or to zero

    The forward pass must be inside too. Learning rates are those at the time of the backward pass. Gradients cannot be
    clipped or accumulated this way, and a stack is called once in a step. The weights get the same bits as from
    `optimizer.step()` after the pass.
    """
    from ._stack import Stack
    from .models import Model

    if not isinstance(optimizer, _Optimizer):
        raise TypeError(f"update_inside: expected an optimizer of pareprop.optim, got {type(optimizer).__name__}")
    optimizer._rates()  # so that settings that were changed are refused here
    if any(isinstance(part, torch.nn.parallel.DistributedDataParallel) for part in model.modules()):
        raise ValueError(
            "update_inside: the model is in a DistributedDataParallel, which averages gradients after they are used; step "
            "the optimizer after the backward pass"
        )
    owners: list[Union[Stack, Model]] = [part for part in model.modules() if isinstance(part, (Stack, Model))]
    if not owners:
        raise ValueError("update_inside: the model has no pareprop.Stack and is none of pareprop.models")
    if any(parameter.grad is not None for parameter in model.parameters()):
        raise RuntimeError("update_inside: parameters have gradients already; call optimizer.zero_grad() first")
    network: _core.Network
    if isinstance(model, Model):
        network = model.engine
    else:
        engines = [owner.engine_now() for owner in owners if isinstance(owner, Stack)]
        if len(engines) != len(owners):
            raise ValueError("update_inside: give it the network of pareprop.models itself, not a model that has it")
        network = _core.Network(engines, list(model.parameters()), lambda samples: None, _of_blocks(model))

    def rates() -> list[float]:
        # What torch's schedulers ask for: without it they warn that the optimizer has not stepped yet.
        optimizer._opt_called = True  # type: ignore[attr-defined]
        return optimizer._rates()

    taker = _core.StepInside(network, optimizer._engines, rates)
    for owner in owners:
        owner._taker = taker
    try:
        yield
    finally:
        for owner in owners:
            owner._taker = None
        taker.end()
