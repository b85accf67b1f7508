"""Reversible ViT, Swin, MViT and RoBERTa as modules of PyTorch. They run in C++."""

from __future__ import annotations

import json
import os
import pathlib
import warnings
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

    adapted: list[str]
    """What `create` changed of pretrained weights to make them fit, a sentence each."""

    def __init__(self, name: str, overrides: dict[str, Any], exact: bool, seed: int) -> None:
        super().__init__()
        self.name = name
        self._overrides = overrides
        self._seed = seed
        self.exact = exact
        self.adapted = []
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
        """Loads safetensors with our names, or, for a plain network, with those of Hugging Face: a file, or a folder.
        All shapes must be those of this network; `create(pretrained=...)` adapts them."""
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

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        if any(id(parameter) in memo for parameter in self.parameters()):
            raise RuntimeError(
                f"{self.name}: its parameters were copied before it, so the copy could not have them; copy the model "
                "first, as in copy.deepcopy((model, optimizer))"
            )
        rebuild, arguments = self.__reduce__()
        twin: Model = rebuild(*arguments)
        memo[id(self)] = twin
        for mine, own in zip(self.parameters(), twin.parameters()):
            memo[id(mine)] = own
        return twin

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
            self.adapted,
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
    adapted: list[str],
) -> Model:
    model = Model(name, overrides, exact, seed)
    first = next(iter(weights.values()))
    model.to(device=first.device, dtype=first.dtype)
    model.load_state_dict(weights)
    for parameter, tensor in model.named_parameters():
        tensor.requires_grad_(parameter not in frozen)
    model.plan = plan
    model.adapted = adapted
    return model.train(training)


# What the configuration of a run calls a size that has another name here.
_OF_RUN = {"depth": "depths", "embeddings": "vocabulary", "seq_len": "length"}
_SIZES = (
    "depths width heads mlp_ratio patch window image_size channels classes length vocabulary positions norm_eps "
    "no_qkv_bias distillation encoder dropout drop_path plain ending class_token"
).split()


def _network_of_run(weights: _core.Pretrained) -> Optional[tuple[str, dict[str, Any]]]:
    """The network of the run whose folder the weights are in, as `pareprop train` or `convert` wrote it; else None."""
    folder = pathlib.Path(weights.folder)
    if weights.names != "pareprop" or not (folder / "config.json").exists():
        return None
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not isinstance(said, dict) or not isinstance(said.get("model"), str) or "class_token" not in said:
        return None
    named = {_OF_RUN.get(key, key): value for key, value in said.items()}
    sizes = {key: named[key] for key in _SIZES if named.get(key) not in (None, [], False)}
    if (folder / "classes.json").exists():
        images = json.loads((folder / "classes.json").read_text(encoding="utf-8"))
        sizes.update(classes=len(images["classes"]), image_size=images["image_size"], channels=images["channels"])
        sizes.pop("vocabulary", None)
    else:  # of a text they follow from the tokenizer and the data
        sizes.update(vocabulary=weights.shape("embeddings.word")[0], positions=weights.shape("embeddings.position")[0])
    return said["model"], sizes


def _network_of(weights: _core.Pretrained, path: str, name: Optional[str], given: dict[str, Any]) -> tuple[str, Any]:
    """The name and the sizes of a network for these weights; what the caller said comes first."""
    of_run = _network_of_run(weights)
    found, sizes = of_run or (weights.model, weights.sizes)
    if name is not None and (name != found or (weights.names == "pareprop" and of_run is None)):
        return name, given
    if found is None:
        raise ValueError(f"create: the weights in {path} do not tell their network: give its name, and its sizes")
    if name is None and of_run is None:
        if weights.needs_heads and "heads" not in given:
            raise ValueError(
                f"create: the weights in {path} do not tell the number of heads: give heads=, or put the config.json "
                "of the model beside them"
            )
        if weights.assumed:
            warnings.warn(f"pareprop.models.create: {weights.assumed}", stacklevel=3)
    return found, {**sizes, **given}


def create(
    name: Optional[str] = None,
    *,
    classes: Optional[int] = None,
    pretrained: Union[str, os.PathLike[str], None] = None,
    mode: Optional[str] = None,
    exact: bool = False,
    seed: int = 0,
    plain: Optional[bool] = None,
    depths: Union[int, list[int], None] = None,
    width: Optional[int] = None,
    heads: Union[int, list[int], None] = None,
    mlp_ratio: Optional[float] = None,
    patch: Optional[int] = None,
    window: Optional[int] = None,
    image_size: Optional[int] = None,
    channels: Optional[int] = None,
    length: Optional[int] = None,
    vocabulary: Optional[int] = None,
    positions: Optional[int] = None,
    norm_eps: Optional[float] = None,
    no_qkv_bias: Optional[bool] = None,
    encoder: Optional[str] = None,
    ending: Optional[str] = None,
    class_token: Optional[bool] = None,
    distillation: Optional[str] = None,
    dropout: Optional[float] = None,
    drop_path: Optional[float] = None,
) -> Model:
    """Makes a network by its name, with weights drawn from `seed`, or of pretrained weights.

    Arguments:
        name: one of `names()`, such as "vit_small". Without it the network follows from the pretrained weights.
        pretrained: safetensors of ours, or for plain networks of Hugging Face transformers or timm: a file, a folder
            with config.json, or the folder of a run of the program. What differs from the weights by what is given here
            is adapted where that makes sense (classes, image size, window, channels, length); `adapted` says what was.
        mode: "stored", "checkpoint", "reprop" or "pareprop" (the default); `pareprop.plan` finds a mixture for a
            budget. A plain network has the first two, and "stored" is its default.
        exact: keep the streams as fixed-point numbers, which are recovered bit for bit.
        plain: the ordinary network of the same size instead of the reversible one.
        heads: of each stage; one number is that of the first, and each next one has twice as many.
        mlp_ratio: width of the MLP, as a multiple of the width.
        patch, window: sides of a patch in pixels, and of Swin's windows in tokens.
        positions: rows of the table of positions of a text.
        no_qkv_bias: queries, keys and values without bias.
        encoder: of text, "norm-first"; plain networks also "roberta" or "bert", with norms behind the sums.
        ending: what is read of the streams: "concat", "sum", "mean", "y1", "y2" or "sum-x".
        class_token: a reversible ViT has the tokens and the head of an ordinary one.
        distillation: of DeiT, "none", "token" or "heads".
        others: change the size.
    """
    given = locals()
    changes = {key: given[key] for key in _SIZES if given[key] is not None}
    for key in ("depths", "heads"):
        if isinstance(changes.get(key), int):
            changes[key] = [changes[key]]
    weights = None
    if pretrained is not None:
        path = os.fspath(pretrained)
        weights = _core.Pretrained(path)
        name, changes = _network_of(weights, path, name, changes)
    elif name is None:
        raise TypeError("create: give the name of a network (pareprop.models.names()), or pretrained weights")
    model = Model(name, changes, exact, seed)
    if weights is not None:
        model.adapted, new_head = weights.load(model.engine)
        if new_head and classes is None:
            raise ValueError(
                f"create: the head of {name} is not that of the weights in {path}: give classes= for a new one"
            )
    if mode is not None or not changes.get("plain"):
        model.set_mode(mode or "pareprop")
    return model
