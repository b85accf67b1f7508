"""Reversible blocks of the user's own modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor

from . import _core
from .nn import RandomLayer

Branch = Union[torch.nn.Module, Callable[..., Tensor]]

_LETTERS = {"S": "store", "P": "products", "C": "checkpoint", "A": "anchor", "R": "reverse"}


class Drift(NamedTuple):
    """How far recovered streams were from those of the forward pass."""

    worst: float
    """The largest relative deviation of the sampled values; 0 if nothing was recovered."""
    branch: Optional[str]
    """Where it was, such as "block 3, branch F"."""
    at_bottom: Optional[float]
    """If both streams began as one tensor: the largest |x1 - x2| of the recovered inputs."""


class Task(NamedTuple):
    """One task of a backward pass, with times in seconds."""

    kind: str
    block: int
    branch: str
    lane: int
    begin: float
    end: float


class WatchHandle:
    """Ends a watch: call `remove()`, or use it in a `with` statement."""

    def __init__(self, stack: Stack, watch: _core.Watch) -> None:
        self._stack = stack
        self._watch = watch
        stack._watches.append(self)  # it lasts until remove(), also if nobody holds it

    def remove(self) -> None:
        if self in self._stack._watches:
            self._stack._watches.remove(self)
        self._watch.end()

    def __enter__(self) -> WatchHandle:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.remove()


class Block(torch.nn.Module):
    """`y1 = x1 + F(x2)`, `y2 = x2 + G(y1)`. Branches that are modules are its children `f` and `g`."""

    f: Branch
    g: Branch

    def __init__(self, f: Branch, g: Branch) -> None:
        super().__init__()
        for name, branch in (("f", f), ("g", g)):
            if not callable(branch):
                raise TypeError(
                    f"Stack: a branch is a module or a function, got {branch!r}; blocks are pairs (F, G) of them"
                )
            if isinstance(branch, torch.nn.Module):
                self.add_module(name, branch)
            else:
                # Beside the attributes that nn.Module knows of.
                object.__setattr__(self, name, branch)

    def branches(self) -> tuple[Branch, Branch]:
        return self.f, self.g

    def _no_hooks(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Stack: hooks of a block would not be called, because the stack computes the branches of its blocks one by "
            "one. Register the hook with a branch (stack[i].f or stack[i].g) or with the stack; "
            "stack.on_block_gradients tells of the gradients of a block"
        )

    register_forward_hook = register_forward_pre_hook = _no_hooks
    register_full_backward_hook = register_full_backward_pre_hook = register_backward_hook = _no_hooks

    def forward(self, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
        y1 = x1 + self.f(x2)
        return y1, x2 + self.g(y1)


# The stacks that are called while `record_calls` is open.
_calls: Optional[list[Stack]] = None


@contextmanager
def record_calls() -> Iterator[list[Stack]]:
    """A list of the stacks that are called within it, in order."""
    global _calls
    before, _calls = _calls, []
    try:
        yield _calls
    finally:
        _calls = before


def _is_compiled(branch: Branch) -> bool:
    """Whether `torch.compile` was called with it or a part of it, or `compile()` of a module."""
    if not isinstance(branch, torch.nn.Module):
        return hasattr(branch, "_torchdynamo_orig_callable")
    return any(
        hasattr(part, "_orig_mod")
        or hasattr(part.forward, "_torchdynamo_orig_callable")
        or part._compiled_call_impl is not None
        for part in branch.modules()
    )


def _signature(branch: Branch) -> tuple[int, set[str], bool]:
    """How many positional arguments a branch takes after x, their names, and whether it takes any name."""
    called = branch.forward if isinstance(branch, torch.nn.Module) else branch
    if isinstance(branch, torch.nn.Module) and hasattr(branch, "_orig_mod"):
        called = branch._orig_mod.forward  # type: ignore[union-attr]
    try:
        parameters = list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):  # of a function that is not written in Python
        return 0, set(), False
    positional = 0
    names: set[str] = set()
    any_name = False
    if parameters and parameters[0].kind != parameters[0].VAR_POSITIONAL:
        del parameters[0]
    for parameter in parameters:
        if parameter.kind == parameter.VAR_POSITIONAL:
            positional = 1 << 20
        elif parameter.kind == parameter.VAR_KEYWORD:
            any_name = True
        else:
            positional += parameter.kind != parameter.KEYWORD_ONLY
            if parameter.kind != parameter.POSITIONAL_ONLY:
                names.add(parameter.name)
    return positional, names, any_name


def _where(k: int) -> str:
    return f"block {k // 2}, branch {'FG'[k % 2]}"


def _new_plan(
    depth: int, mode: Optional[str], policies: Union[str, Sequence[str], None], plan: Optional[_core.StackPlan]
) -> _core.StackPlan:
    if sum(given is not None for given in (mode, policies, plan)) > 1:
        raise ValueError("Stack: give one of mode, policies and plan; each says what the forward pass keeps")
    if plan is not None:
        return plan
    if policies is not None:
        return _core.StackPlan([_LETTERS.get(policy, policy) for policy in policies])
    return _core.StackPlan.of_mode(mode or "pareprop", depth)


class Stack(torch.nn.Module):
    """Reversible blocks, one after another, that recompute their inputs in the backward pass.

    A block is a pair (F, G) of modules or functions, without residual inside, whose output has the shape of their
    input: `y1 = x1 + F(x2)`, `y2 = x2 + G(y1)`. In a transformer F is attention and G is the MLP.

        stack = pareprop.Stack([(Attention(dim), Mlp(dim)) for _ in range(24)])
        y1, y2 = stack(x, x)

    Arguments:
        blocks: the pairs. Modules become children: parameters are called "0.f.weight", "0.g.weight", ...
        mode: "stored", "checkpoint", "reprop" or "pareprop" (the default): what the forward pass keeps.
        policies: instead of a mode, one policy for each block: "store", "products", "checkpoint", "anchor" or
            "reverse", or a string of their first letters, such as "SSCR".
        plan: instead of a mode, a `StackPlan`.
        exact: keep the streams as fixed-point numbers, which are recovered bit for bit.
        fraction_bits: of exact streams; 0 for the default.
        drift_limit: recovered streams may differ by this, relative to their largest value; 0 for the default.
        allow_unused_parameters: whether a parameter of a branch may get no gradient.

    Streams are float32, or float64 if the inputs are. Inputs of lower precision are converted, and the outputs have
    their type again. A branch whose weights are bfloat16 or float16 gets its input in this type.

    Dropout inside a branch must be `pareprop.nn.Dropout`, which draws the same mask in the recomputation.
    """

    def __init__(
        self,
        blocks: Sequence[tuple[Branch, Branch]],
        mode: Optional[str] = None,
        *,
        policies: Union[str, Sequence[str], None] = None,
        plan: Optional[_core.StackPlan] = None,
        exact: bool = False,
        fraction_bits: int = 0,
        drift_limit: float = 0.0,
        allow_unused_parameters: bool = False,
    ) -> None:
        super().__init__()
        for i, block in enumerate(blocks):
            if not isinstance(block, (tuple, list)) or len(block) != 2:
                raise TypeError(
                    f"Stack: block {i} is of type '{type(block).__name__}'; expected a pair (F, G) of modules or "
                    "functions"
                )
            self.add_module(str(i), Block(*block))
        self._plan = _new_plan(len(blocks), mode, policies, plan)
        self._options: dict[str, Any] = {
            "exact": exact,
            "fraction_bits": fraction_bits,
            "drift_limit": drift_limit,
            "allow_unused_parameters": allow_unused_parameters,
        }
        self._watches: list[WatchHandle] = []
        # Of all engines, so that calls of an engine that has been replaced are watched too.
        self._observers = _core.Observers()
        self._taker: Optional[_core.GradientTaker] = None
        self._sends_gradients = False  # to other processes, until the end of a backward pass
        self._engine: Optional[_core.Stack] = None
        self._engine_key: object = None
        self._make_engine([], ("", ()), "fp32", self._plan)  # so that a plan that does not fit is refused here

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._modules.values())  # type: ignore[arg-type]

    def __getitem__(self, i: int) -> Block:
        return list(self)[i]

    def extra_repr(self) -> str:
        return f"plan={self.plan!r}, exact={self.exact}"

    @property
    def exact(self) -> bool:
        """Whether streams are fixed-point numbers."""
        return bool(self._options["exact"])

    @property
    def plan(self) -> _core.StackPlan:
        """The plan of the next calls; calls that have begun keep theirs."""
        return self._plan

    @plan.setter
    def plan(self, plan: _core.StackPlan) -> None:
        self._make_engine([], ("", ()), "fp32", plan)
        self._plan = plan
        self._engine = None

    def set_mode(self, mode: str) -> None:
        """Gives the next calls the plan of a mode."""
        self.plan = _core.StackPlan.of_mode(mode, len(self))

    @property
    def drift(self) -> Drift:
        """The drift of the last backward pass."""
        if self._engine is None:
            return Drift(0.0, None, None)
        worst, branch, at_bottom = self._engine.drift()
        return Drift(worst, None if branch < 0 else _where(branch), None if at_bottom < 0 else at_bottom)

    def on_block_gradients(self, callback: Callable[[int, list[Tensor], list[Tensor]], None]) -> WatchHandle:
        """Calls `callback(block, parameters, gradients)` for each block, from the last to the first, as soon as its
        gradients are final, while lower blocks are still being recovered. A change of the gradients in place changes
        what the parameters get. The callback runs on the thread of a lane: keep it short.
        """
        return WatchHandle(self, self._observers.watch_blocks(callback))

    def watch(self, callback: Callable[[list[Task]], None]) -> WatchHandle:
        """Calls `callback(tasks)` at the end of each backward pass with what ran when."""

        def call(spans: list[tuple[str, int, str, int, float, float]]) -> None:
            callback([Task(*span) for span in spans])

        return WatchHandle(self, self._observers.watch_backward(call))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(
        self, x1: Tensor, x2: Tensor, *extras: Optional[Tensor], **named: Optional[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Returns y1 and y2.

        Further arguments, tensors or None, are given to every branch that takes them, by position or by name; those
        that require gradients get them.
        """
        return self._call("forward", x1, x2, extras, named)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def reference(
        self, x1: Tensor, x2: Tensor, *extras: Optional[Tensor], **named: Optional[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The same with ordinary autograd and everything stored: to compare with, and for gradients of gradients."""
        return self._call("reference", x1, x2, extras, named)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def inverse(
        self, y1: Tensor, y2: Tensor, *extras: Optional[Tensor], **named: Optional[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The inputs of which the stack made y1 and y2 with these extra arguments, up to rounding; without gradients.

        In training mode dropout would draw other masks than the forward pass: call `eval()` first.
        """
        if any(isinstance(module, RandomLayer) and module.training and module.p > 0 for module in self.modules()):
            raise RuntimeError(
                "Stack: the inverse would draw other dropout masks than the forward pass; call eval() before both"
            )
        return self._call("inverse", y1, y2, extras, named)

    def _call(
        self, what: str, x1: Tensor, x2: Tensor, extras: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        letter = "y" if what == "inverse" else "x"
        for label, x in ((f"{letter}1", x1), (f"{letter}2", x2)):
            if not isinstance(x, Tensor) or not x.is_floating_point():
                kind = f"a tensor of {x.dtype}" if isinstance(x, Tensor) else f"{x!r}"
                raise TypeError(f"Stack: {label} is {kind}; expected a tensor of floating-point numbers")
        dtype = x1.dtype
        stream = torch.float64 if dtype == torch.float64 else torch.float32
        same = x1 is x2
        x1 = x1.to(stream)
        x2 = x1 if same else x2.to(stream)
        if _calls is not None:
            _calls.append(self)
        engine = self._engine_for(len(extras), tuple(named), "fp64" if stream == torch.float64 else "fp32")
        given = [self._checked(i, extra) for i, extra in enumerate((*extras, *named.values()))]
        # From torch's generator: `torch.manual_seed` and `torch.utils.checkpoint` repeat the masks.
        seed = int(torch.randint(1 << 62, (), device="cpu").item()) if self.training and not _core.in_pass() else 0
        if what == "reference":
            y1, y2 = engine.reference(x1, x2, given, seed)
        elif what == "inverse":
            y1, y2 = engine.inverse(x1, x2, given)
        else:
            y1, y2 = engine.forward(x1, x2, given, seed, self._taker)
        return y1.to(dtype), y2.to(dtype)

    @staticmethod
    def _checked(i: int, extra: Any) -> Optional[Tensor]:
        if extra is not None and not isinstance(extra, Tensor):
            raise TypeError(
                f"Stack: extra argument {i} is {extra!r}; expected a tensor or None. Give other values to the branches "
                "themselves, for example with functools.partial"
            )
        return extra

    def _engine_for(self, positional: int, names: tuple[str, ...], precision: str) -> _core.Stack:
        """The engine for these arguments, and for the modules as they are now."""
        branches: list[Branch] = [branch for block in self for branch in block.branches()]
        tensors: list[int] = []
        for branch in branches:
            if isinstance(branch, torch.nn.Module):
                for module in branch.modules():
                    tensors.extend(map(id, module._parameters.values()))
                    tensors.extend(map(id, module._buffers.values()))
                    tensors.append(id(module._compiled_call_impl))
        key = (positional, names, precision, list(map(id, branches)), tensors)
        engine = self._engine
        if engine is None or key != self._engine_key:
            self._check_sharding()
            engine = self._make_engine(branches, (positional, names), precision, self._plan)
            self._engine, self._engine_key = engine, key
        return engine

    def engine_now(self) -> _core.Stack:
        """The engine of the last call, or one for a call without extra arguments."""
        return self._engine or self._engine_for(0, (), "fp32")

    def _check_sharding(self) -> None:
        for name, parameter in self.named_parameters():
            if type(parameter.data).__name__ == "DTensor":
                raise TypeError(
                    f"Stack: parameter '{name}' is sharded (a DTensor) in the forward pass of the stack. fully_shard a "
                    "part of a stack cannot work, because the stack computes its blocks again outside of their hooks; "
                    "fully_shard the stack as a whole, or the model that has it"
                )

    def _make_engine(
        self, branches: list[Branch], extras: tuple[Any, tuple[str, ...]], precision: str, plan: _core.StackPlan
    ) -> _core.Stack:
        positional, names = extras
        options = _core.StackOptions(precision=precision, **self._options)
        if not branches:  # only to check the plan
            nothing: Any = [("", abs, [], [], []) for _ in range(2 * len(self))]
            return _core.Stack(nothing, plan, options, self._observers)
        parts: list[Any] = []
        used: set[str] = set()
        for k, branch in enumerate(branches):
            takes, known, any_name = _signature(branch)
            taken = [(i, "") for i in range(min(takes, positional))]
            by_name = [(positional + i, name) for i, name in enumerate(names) if any_name or name in known]
            used.update(name for _, name in by_name)
            is_module = isinstance(branch, torch.nn.Module)
            parameters = list(branch.named_parameters()) if is_module else []  # type: ignore[union-attr]
            buffers = list(branch.named_buffers()) if is_module else []  # type: ignore[union-attr]
            parts.append((_where(k), branch, taken + by_name, parameters, buffers))
        for name in names:
            if name not in used:
                raise TypeError(f"Stack: no branch takes the argument '{name}'")
        if positional > max((_signature(branch)[0] for branch in branches), default=0):
            raise TypeError(f"Stack: {positional} extra arguments were given, and no branch takes as many after x")
        if plan.overlap and any(map(_is_compiled, branches)):
            # What torch.compile has to compile anew in the backward pass must not be compiled on two lanes at once.
            plan = _core.StackPlan(plan.policies, tail=plan.tail)
        return _core.Stack(parts, plan, options, self._observers)

    def __getstate__(self) -> dict[str, Any]:
        # Copies and files have the modules and the settings; watches are of this object.
        return {
            **self.__dict__,
            "_engine": None,
            "_engine_key": None,
            "_watches": [],
            "_observers": None,
            "_sends_gradients": False,
            "_taker": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._observers = _core.Observers()
