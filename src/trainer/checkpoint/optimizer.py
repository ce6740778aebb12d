"""Optimizer state under parameter names: an index means another parameter when groups or stages are cut otherwise."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.optim import Optimizer

from trainer.checkpoint import tensors
from trainer.checkpoint.names import plain_names
from trainer.checkpoint.parts import gathered, is_part, part_like
from trainer.checkpoint.spread import collected, own_part
from trainer.checkpoint.stages import joined, keeps
from trainer.errors import UserError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor

OPTIMIZER_FILE = "optimizer.pt"
_FIX = "Use the [optim] section that it was saved with, or choose another --run.folder."
# The run file decides these, also after a resume; and these only say how the same update is computed.
_CONFIGURED = {"lr", "initial_lr", "betas", "eps", "momentum", "weight_decay"}
_IMPLEMENTATION = {"foreach", "fused", "capturable", "differentiable", "maximize"}


def save_optimizer(
    folder: Path,
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    write: bool = True,
    stages: "ProcessGroup | None" = None,
) -> None:
    """Writes `optimizer.pt`: each parameter's shape, optimizer class and state; and each group's values.

    The optimizers together hold parameters of `model`, each once. Collective where these or their state are cut over
    ranks, or into pipeline `stages`; `write`: whether this rank is the one that writes. UserError when the disk
    refuses.
    """
    kept = keeps(write, stages)
    names = _parameter_names(model)
    parameters: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer, group in _groups(optimizers):
        inside = [_name(names, parameter) for parameter in group["params"]]
        values = {key: value for key, value in group.items() if key != "params" and _is_plain(value)}
        groups.append({"parameters": inside, "values": values})
        states = collected(optimizer, group["params"])
        for name, parameter in zip(inside, group["params"], strict=True):
            assert name not in parameters, f"{name} is in two groups"
            parameters[name] = {
                "optimizer": type(own_part(optimizer)).__name__,
                "shape": list(parameter.shape),
                "state": gathered(states[parameter], kept),
            }
    if stages is not None and kept:
        parameters = joined(parameters, stages)
        groups = [group for own in joined({str(stages.rank()): groups}, stages).values() for group in own]
    if write:
        tensors.save(folder / OPTIMIZER_FILE, {"parameters": parameters, "groups": groups})


def load_optimizer(folder: Path, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Puts saved state back, bit for bit, found by parameter name. Everything is compared before anything is changed.

    Groups keep the values that the running configuration gave them. A group of an optimizer from elsewhere than
    torch.optim also gets back what it may count there itself (not the learning rate, betas, eps, momentum, decay).
    UserError (status 2) when a parameter has no saved state, or that of another optimizer or shape.
    """
    saved = tensors.load(folder, OPTIMIZER_FILE)
    with tensors.understood(folder, OPTIMIZER_FILE):
        _take_over(folder, saved, model, optimizers)


def _take_over(folder: Path, saved: dict[str, Any], model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    names = _parameter_names(model)
    found: list[tuple[Optimizer, dict[str, Any], nn.Parameter, dict[str, Any]]] = []
    for optimizer, group in _groups(optimizers):
        for parameter in group["params"]:
            part = own_part(optimizer)
            state = _find(folder, saved["parameters"], _name(names, parameter), parameter, type(part).__name__)
            found.append((part, group, parameter, state))
    for optimizer in optimizers:
        own_part(optimizer).state.clear()
    own = {each for _, group in _groups([own_part(optimizer) for optimizer in optimizers]) for each in group["params"]}
    for part, group, parameter, state in found:
        if state and parameter in own:
            part.state[parameter] = {key: _placed(key, value, parameter, group) for key, value in state.items()}
    values_of = {name: group["values"] for group in saved["groups"] for name in group["parameters"]}
    for optimizer, group in _groups(optimizers):
        if group["params"] and not type(own_part(optimizer)).__module__.startswith("torch.optim"):
            values = values_of[names[group["params"][0]]]
            group.update({k: v for k, v in values.items() if k in group and k not in _CONFIGURED | _IMPLEMENTATION})


def _groups(optimizers: Sequence[Optimizer]) -> Iterator[tuple[Optimizer, dict[str, Any]]]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield optimizer, group


def _parameter_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """Each parameter's own name; a tied one has its first."""
    wrapped = dict(model.named_parameters())
    plain = plain_names(model, wrapped)
    return {parameter: plain[name] for name, parameter in wrapped.items()}


def _name(names: dict[nn.Parameter, str], parameter: nn.Parameter) -> str:
    if parameter not in names:
        raise UserError(
            f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is not a parameter of the model",
            "Make it an attribute of the model, so that it is saved.",
        )
    return names[parameter]


def _find(folder: Path, saved: dict[str, Any], name: str, parameter: nn.Parameter, optimizer: str) -> dict[str, Any]:
    what = f"the checkpoint {folder}"
    if name not in saved:
        raise UserError(f"{what} has no optimizer state for {name}", _FIX, 2)
    entry = saved[name]
    if entry["optimizer"] != optimizer:
        raise UserError(f"{what} has state of {entry['optimizer']} for {name}, this run uses {optimizer}", _FIX, 2)
    if entry["shape"] != list(parameter.shape):
        shapes = f"{tuple(entry['shape'])}, this model's {tuple(parameter.shape)}"
        raise UserError(f"{what} has optimizer state for a {name} of shape {shapes}", _FIX, 2)
    state: dict[str, Any] = entry["state"]
    return state


def _placed(key: str, value: Any, parameter: nn.Parameter, group: dict[str, Any]) -> Any:
    """To the parameter's device, its type as saved. Step counters stay on the host unless the update runs on the device
    alone (as torch.optim has it)."""
    if isinstance(value, torch.Tensor):
        if is_part(parameter) and value.shape == parameter.shape:
            return part_like(value, cast("DTensor", parameter))
        on_host = key == "step" and not (group.get("capturable") or group.get("fused"))
        return value if on_host else value.to(parameter.device)
    if isinstance(value, list | tuple):
        return type(value)(_placed(key, each, parameter, group) for each in value)
    if isinstance(value, dict):
        return {inner: _placed(inner, each, parameter, group) for inner, each in value.items()}
    return value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(each) for each in value)
    return value is None or isinstance(value, bool | int | float | str)
