"""Reversible ViT, Swin, MViT and RoBERTa as modules of PyTorch. They run in C++."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

import torch
from torch import Tensor

from . import _core

__all__ = ["Model", "create", "names"]

_TYPES = {torch.float32: "fp32", torch.float64: "fp64"}


def names() -> list[str]:
    """The names that `create` knows."""
    return _core.model_names()


class _Part(torch.nn.Module):
    """A module that only holds parameters: the computation is in C++."""

    def forward(self) -> None:
        raise NotImplementedError("this part of the network is computed in C++; call the whole model")


class Model(torch.nn.Module):
    """A network in C++ that shares its parameters with this module. Made by `create`.

    `model(input)` gives scores, `model.loss(input, target)` the mean cross entropy. Weights are float32 or float64;
    for bfloat16 use `torch.autocast`.
    """

    def __init__(self, name: str, overrides: dict[str, Any], exact: bool, seed: int) -> None:
        super().__init__()
        self.name = name
        self._overrides = overrides
        self._seed = seed
        self.exact = exact
        self._taker: Optional[_core.GradientTaker] = None
        self.engine = _core.Model(name, overrides, torch.device("cpu"), torch.float32, seed)
        self._own: list[tuple[torch.nn.Module, str, Tensor]] = []
        for path, tensor in self.engine.named_parameters():
            # The tensor of C++ becomes a Parameter of Python; a new Parameter would be another tensor.
            tensor.__class__ = torch.nn.Parameter
            part, last = self._part(path)
            # Not register_parameter(), which refuses names of members of modules, such as "type".
            part._parameters[last] = tensor  # type: ignore[assignment]
            self._own.append((part, last, tensor))
        self._take_buffers()
        self._set_options()

    def _part(self, path: str) -> tuple[torch.nn.Module, str]:
        *folders, last = path.split(".")
        part: torch.nn.Module = self
        for folder in folders:
            if folder not in part._modules:
                part.add_module(folder, _Part())
            part = part.get_submodule(folder)
        return part, last

    def _take_buffers(self) -> None:
        for path, tensor in self.engine.named_buffers():
            part, last = self._part(path)
            part.register_buffer(last, tensor, persistent=False)

    def _set_options(self) -> None:
        dtype = next(self.parameters()).dtype
        self.engine.set_options(_core.StackOptions(precision=_TYPES[dtype], exact=self.exact))

    def _check_own(self) -> None:
        for part, name, tensor in self._own:
            if part._parameters.get(name) is not tensor:
                raise RuntimeError(
                    f"{self.name}: parameter '{name}' was replaced by another object, which the network in C++ does "
                    "not see; change its values instead (load_state_dict without assign=True, or copy_ under no_grad)"
                )

    def _seed_of_call(self) -> int:
        # From torch's generator, as dropout of torch: `torch.manual_seed` repeats the masks.
        return int(torch.randint(1 << 62, (), device="cpu").item()) if self.training else 0

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, input: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """Scores (rows, classes). Of text, `input` is token ids and `mask` is false where there is padding."""
        self._check_own()
        return self.engine.forward(input, mask, self._seed_of_call(), self._taker)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def loss(self, input: Tensor, target: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """The mean cross entropy. Of text, targets of tokens that are not scored are -100."""
        self._check_own()
        return self.engine.loss(input, target, mask, self._seed_of_call(), self._taker)

    def example(self, batch: int, seed: int = 0) -> tuple[Tensor, Tensor, Optional[Tensor]]:
        """Random input, target and mask of the right shapes."""
        return self.engine.example(batch, seed)

    @property
    def plan(self) -> _core.StepPlan:
        """What each block keeps in the next steps."""
        return self.engine.plan()

    @plan.setter
    def plan(self, plan: _core.StepPlan) -> None:
        self.engine.set_plan(plan)

    def set_mode(self, mode: str) -> None:
        """"stored", "checkpoint", "reprop" or "pareprop"."""
        self.engine.set_mode(mode)

    def train(self, mode: bool = True) -> Model:
        super().train(mode)
        self.engine.train(mode)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Model:
        first = next(self.parameters())
        changed = fn(first.new_empty(1)).dtype
        if changed not in _TYPES:
            raise TypeError(
                f"{self.name}: weights cannot be {changed}; they are float32 or float64. To compute in lower "
                "precision, use torch.autocast"
            )
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.engine.follow_weights()
        self._take_buffers()
        self._set_options()
        return self

    def on_meta(self) -> _core.Model:
        """The same network in C++ on the meta device: shapes without memory."""
        dtype = next(self.parameters()).dtype
        made = _core.Model(self.name, self._overrides, torch.device("meta"), dtype, self._seed)
        made.train(self.training)
        for (_, mine), (_, _, own) in zip(made.named_parameters(), self._own):
            mine.requires_grad_(own.requires_grad)
        return made

    def load(self, path: Union[str, os.PathLike[str]]) -> None:
        """Loads a safetensors file with our names, or, for a plain network, with those of Hugging Face."""
        self.engine.load(os.fspath(path))

    def save(self, path: Union[str, os.PathLike[str]], *, hugging_face: bool = False) -> None:
        """Writes a safetensors file with our names, or, for a plain network, with those of Hugging Face."""
        self.engine.save(os.fspath(path), hugging_face)

    def hugging_face_state_dict(self) -> dict[str, Tensor]:
        """The weights of a plain network under the names of Hugging Face transformers."""
        own = self.state_dict()
        result: dict[str, Tensor] = {}
        for parameter, parts, shape in self.engine.hugging_face_names():
            for part, value in zip(parts, own[parameter].chunk(len(parts))):
                result[part[0]] = value.reshape(shape) if shape else value
        return result

    def load_hugging_face_state_dict(self, weights: Mapping[str, Tensor]) -> None:
        """Takes the weights of the same plain network in Hugging Face transformers."""
        own: dict[str, Tensor] = {}
        shapes = {name: parameter.shape for name, parameter in self.named_parameters()}
        for parameter, parts, _ in self.engine.hugging_face_names():
            values = []
            for part in parts:
                known = [name for name in part if name in weights]
                if not known:
                    raise KeyError(f"{self.name}: the state_dict has no '{part[0]}', which '{parameter}' is made of")
                value = weights[known[0]]
                if value.numel() * len(parts) != shapes[parameter].numel():
                    raise ValueError(
                        f"{self.name}: '{known[0]}' has the shape {list(value.shape)}, which does not fit "
                        f"'{parameter}' of shape {list(shapes[parameter])}: the state_dict is of a network of another size"
                    )
                values.append(value)
            rows, *others = shapes[parameter]
            own[parameter] = torch.cat([value.reshape(rows // len(parts), *others) for value in values])
        self.load_state_dict(own)

    def __reduce__(self) -> Any:
        frozen = [name for name, parameter in self.named_parameters() if not parameter.requires_grad]
        return _rebuilt, (
            self.name,
            self._overrides,
            self.exact,
            self._seed,
            {name: tensor for name, tensor in self.state_dict().items()},
            frozen,
            self.training,
            self.plan,
        )

    def extra_repr(self) -> str:
        return f"name={self.name!r}, mode={self.plan.mode!r}, exact={self.exact}"


def _rebuilt(
    name: str,
    overrides: dict[str, Any],
    exact: bool,
    seed: int,
    weights: dict[str, Tensor],
    frozen: list[str],
    training: bool,
    plan: _core.StepPlan,
) -> Model:
    model = Model(name, overrides, exact, seed)
    first = next(iter(weights.values()))
    model.to(device=first.device, dtype=first.dtype)
    model.load_state_dict(weights)
    for parameter, tensor in model.named_parameters():
        tensor.requires_grad_(parameter not in frozen)
    model.plan = plan
    return model.train(training)


def create(
    name: str,
    *,
    classes: Optional[int] = None,
    pretrained: Union[str, os.PathLike[str], None] = None,
    mode: str = "pareprop",
    exact: bool = False,
    seed: int = 0,
    plain: bool = False,
    depths: Union[int, list[int], None] = None,
    width: Optional[int] = None,
    image_size: Optional[int] = None,
    channels: Optional[int] = None,
    length: Optional[int] = None,
    vocabulary: Optional[int] = None,
    dropout: Optional[float] = None,
    drop_path: Optional[float] = None,
) -> Model:
    """Makes a network by its name, with weights drawn from `seed`, or from a safetensors file.

    Arguments:
        name: one of `names()`, such as "vit_small".
        pretrained: a safetensors file with our names; for plain networks also with those of Hugging Face.
        mode: "stored", "checkpoint", "reprop" or "pareprop"; `pareprop.plan` finds a mixture for a budget.
        exact: keep the streams as fixed-point numbers, which are recovered bit for bit.
        plain: the ordinary network of the same size instead of the reversible one.
        others: change the size.
    """
    changes = {
        "classes": classes,
        "depths": [depths] if isinstance(depths, int) else depths,
        "width": width,
        "image_size": image_size,
        "channels": channels,
        "length": length,
        "vocabulary": vocabulary,
        "dropout": dropout,
        "drop_path": drop_path,
        "plain": plain or None,
    }
    model = Model(name, {key: value for key, value in changes.items() if value is not None}, exact, seed)
    if pretrained is not None:
        model.load(pretrained)
    if not plain:
        model.set_mode(mode)
    return model
