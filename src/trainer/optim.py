"""Parameter groups, the optimizer and the learning-rate schedule. Torch is imported by what needs it only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from trainer.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from trainer.schema import Optim

    Group: TypeAlias = dict[str, Any]


def check_optim(optim: Optim) -> None:
    """Raises UserError (status 2) for values that no single setting can see to be wrong."""
    if len(optim.betas) != 2 or not all(0.0 <= beta < 1.0 for beta in optim.betas):
        raise UserError(
            f"optim.betas is {optim.betas}: not two numbers from 0 to less than 1.",
            "Give two, such as [0.9, 0.95].",
            2,
        )
    if not 0.0 <= optim.momentum < 1.0:
        raise UserError(f"optim.momentum {optim.momentum:g} is not below 1.", "Give a value from 0 to less than 1.", 2)
    if not 0.0 <= optim.final <= 1.0:
        raise UserError(
            f"optim.final {optim.final:g} is not a share of the peak learning rate.", "Give a value from 0 to 1.", 2
        )
    if not 0.0 < optim.decay <= 1.0:
        raise UserError(
            f"optim.decay {optim.decay:g} is not a share of the updates.", "Give a value above 0, at most 1.", 2
        )
    if optim.warmup < 0:
        raise UserError(f"optim.warmup {optim.warmup} is negative.", "Give 0 or more updates.", 2)
    if optim.schedule not in ("cosine", "linear", "wsd", "constant"):
        raise UserError(f"optim.schedule {optim.schedule!r} is not known.", "Take cosine, linear, wsd or constant.", 2)


def learning_rate(optim: Optim, applied_updates: int, total_updates: int) -> float:
    """Share of the peak learning rate, in [0, 1], for the update that follows `applied_updates` applied ones.

    Warm-up of n updates takes the shares 1/n, 2/n, ..., 1. After it the rate falls over the rest of `total_updates`
    towards `final` (cosine: Loshchilov and Hutter, 2017), which the update after the last would take; wsd stays at the
    peak and falls linearly in the last share `decay` (Hu et al., "MiniCPM", 2024). Skipped updates do not count.
    Raises UserError for values out of range.
    """
    check_optim(optim)
    if applied_updates < 0 or total_updates < 1:
        raise UserError(
            f"Update {applied_updates} of {total_updates} has no learning rate.", "Train at least one update.", 2
        )
    rising = min(1.0, (applied_updates + 1) / optim.warmup) if optim.warmup else 1.0
    if optim.schedule == "constant":
        return rising
    if optim.schedule == "wsd":
        falling = max(1, round(optim.decay * total_updates))
        passed = applied_updates - (total_updates - falling)
    else:
        falling = max(1, total_updates - optim.warmup)
        passed = applied_updates - optim.warmup
    share = min(1.0, max(0.0, passed / falling))
    left = 0.5 * (1.0 + math.cos(math.pi * share)) if optim.schedule == "cosine" else 1.0 - share
    return min(rising, optim.final + (1.0 - optim.final) * left)


class Optimizers:
    """One or more torch optimizers that step as one. The learning rates they come with are the peaks."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self.optimizers = list(optimizers)
        self._peaks = [[float(group["lr"]) for group in optimizer.param_groups] for optimizer in self.optimizers]
        self._parameters: list[Tensor] = [
            parameter
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]

    def step(self) -> None:
        """Applies the gradients."""
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        """Drops the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def set_lr(self, multiplier: float) -> None:
        """Sets every group's learning rate to `multiplier` times its peak."""
        for optimizer, peaks in zip(self.optimizers, self._peaks, strict=True):
            # looked up each time: an optimizer's load_state_dict puts other groups in place
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * multiplier


def build_optimizer(model: nn.Module, optim: Optim, device: torch.device) -> Optimizers:
    """The optimizer of the run file for the parameters of `model`, which lie on `device` already.

    Decay applies to matrices (and kernels of convolutions), never to embeddings, norms and biases. muon: torch's Muon
    (Jordan et al., 2024) for the matrices, AdamW for all else, the layers named in a module's `output_layers` included.
    Raises UserError for values out of range, or if the user's `build` returns something else than optimizers.
    """
    import torch

    check_optim(optim)
    if optim.build:
        return Optimizers(_own(model, optim))
    matrices, outputs, rest = split_parameters(model)
    if optim.name == "muon":
        flat = [parameter for parameter in matrices if parameter.ndim == 2]
        others = [parameter for parameter in matrices if parameter.ndim != 2] + outputs
        found: list[torch.optim.Optimizer] = []
        if flat:
            found.append(
                torch.optim.Muon(
                    flat, lr=optim.matrix_lr, momentum=optim.momentum, weight_decay=optim.weight_decay, nesterov=True
                )
            )
        if others or rest:
            found.append(_adamw(_decay_groups(others, rest, optim), optim, device))
        return Optimizers(found)
    groups = _decay_groups(matrices + outputs, rest, optim)
    if optim.name == "sgd":
        # there is no fused form for DTensors
        fused = _has_fused(device) and not any(hasattr(each, "placements") for each in model.parameters())
        return Optimizers([torch.optim.SGD(groups, lr=optim.lr, momentum=optim.momentum, fused=fused)])
    return Optimizers([_adamw(groups, optim, device)])


def split_parameters(model: nn.Module) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """(matrices, output layers' matrices, all else) of the trained parameters, each once, in the model's order.

    A weight that is an embedding's anywhere is no matrix, also where an output layer shares it.
    """
    from torch import nn

    embeddings: set[Tensor] = set()
    outputs: set[Tensor] = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            embeddings.update(module.parameters(recurse=False))
        for name in getattr(module, "output_layers", ()):
            outputs.update(module.get_submodule(name).parameters())
    found: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    for parameter in model.parameters():
        if parameter.requires_grad:
            flat = parameter.ndim < 2 or parameter in embeddings
            found[2 if flat else 1 if parameter in outputs else 0].append(parameter)
    return found


def _decay_groups(decayed: list[Tensor], rest: list[Tensor], optim: Optim) -> list[Group]:
    if not optim.weight_decay:  # one group, one kernel
        return _by_mesh([{"params": decayed + rest, "weight_decay": 0.0}])
    groups: list[Group] = [
        {"params": decayed, "weight_decay": optim.weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    return _by_mesh([group for group in groups if group["params"]])


def _by_mesh(groups: list[Group]) -> list[Group]:
    """A kernel takes tensors, or DTensors of one mesh: the groups, each parted into such."""
    found: list[Group] = []
    for group in groups:
        parts: dict[object, list[Tensor]] = {}
        for parameter in group["params"]:
            parts.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
        found.extend({**group, "params": inside} for inside in parts.values())
    return found


def _adamw(groups: list[Group], optim: Optim, device: torch.device) -> torch.optim.Optimizer:
    import torch

    first, second = optim.betas
    return torch.optim.AdamW(groups, lr=optim.lr, betas=(first, second), eps=optim.eps, fused=_has_fused(device))


def _has_fused(device: torch.device) -> bool:
    """Fused beats both other forms on CPU too: AdamW on one core 0.055 ms against 0.167 (foreach) and 0.178 (a loop)
    for 9 thousand weights, 5.3 ms against 18.4 and 35.1 for 8.4 million.
    """
    return device.type in ("cpu", "cuda")


def _own(model: nn.Module, optim: Optim) -> list[torch.optim.Optimizer]:
    from torch.optim import Optimizer

    from trainer.user_code import describe, load_object

    build = load_object(optim.build, "optim.build")
    if not callable(build):
        raise UserError(f"optim.build: {optim.build} is no function.", "Name one that takes (model, optim).", 2)
    try:
        built = build(model, optim)
    except Exception as error:
        raise UserError(
            f"optim.build: {optim.build} raised {describe(error)}",
            "Mend it; it is called with (model, config.optim); --traceback shows the whole traceback.",
            2,
        ) from error
    found = list(built) if isinstance(built, list | tuple) else [built]
    if not found or not all(isinstance(optimizer, Optimizer) for optimizer in found):
        raise UserError(
            f"{optim.build} returned {type(built).__name__}, not a torch optimizer.",
            "Let the function of optim.build return a torch.optim.Optimizer or a list of them.",
            2,
        )
    return found
