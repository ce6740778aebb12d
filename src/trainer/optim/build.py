"""The optimizer that the run file names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from trainer.errors import UserError
from trainer.optim.check import check_optim
from trainer.optim.groups import decay_groups, split_parameters
from trainer.optim.optimizers import Optimizers

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.distributed import ProcessGroup

    from trainer.optim.average import Average
    from trainer.optim.groups import Group
    from trainer.schema import Optim


class Recipe(NamedTuple):
    """An optimizer that is still to be made: `kind(groups, **options)`."""

    kind: Callable[..., torch.optim.Optimizer]
    groups: list[Group]
    options: dict[str, Any]


def build_optimizer(
    model: nn.Module, optim: Optim, device: torch.device, spread: ProcessGroup | None = None
) -> Optimizers:
    """The optimizer of the run file for the parameters of `model`, which lie where they are updated already; `device`:
    where the model computes.

    Decay applies to matrices (and kernels of convolutions), never to embeddings, norms and biases. `spread`: ranks with
    equal weights and gradients, each of which keeps the optimizer state of some of them (ZeRO-1).
    Raises UserError for values out of range, or if the user's `build` returns something else than optimizers.
    """
    check_optim(optim)
    if optim.build:
        assert spread is None, "refused before"
        optimizers = _own(model, optim)
    else:
        recipes = [recipe for recipe in OPTIMIZERS[optim.name](model, optim, device) if recipe.groups]
        optimizers = [_made(recipe, spread) for recipe in recipes]
    return Optimizers(optimizers, _average(model, optim, optimizers, spread))


def _made(recipe: Recipe, spread: ProcessGroup | None) -> torch.optim.Optimizer:
    if spread is None:
        return recipe.kind(recipe.groups, **recipe.options)
    from trainer.parallel.zero import apply_zero

    return apply_zero(recipe.kind, recipe.groups, recipe.options, spread)


def _average(
    model: nn.Module, optim: Optim, optimizers: list[torch.optim.Optimizer], spread: ProcessGroup | None
) -> Average | None:
    if optim.average == "none" and (optim.build or optim.name != "schedule_free"):
        return None
    from trainer.optim.average import Average, schedule_free_source

    if optim.average == "ema":
        return Average(model, ema=optim.ema_decay)
    return Average(model, source=schedule_free_source(optimizers, spread))


def _adamw(model: nn.Module, optim: Optim, device: torch.device) -> list[Recipe]:
    matrices, outputs, rest = split_parameters(model)
    return [_adamw_recipe(matrices + outputs, rest, optim)]


def _adamw_recipe(decayed: list[Tensor], rest: list[Tensor], optim: Optim) -> Recipe:
    import torch

    groups = decay_groups(decayed, rest, optim)
    options = {"lr": optim.lr, "betas": _betas(optim), "eps": optim.eps, "fused": _has_fused(groups)}
    return Recipe(torch.optim.AdamW, groups, options)


def _betas(optim: Optim) -> tuple[float, float]:
    first, second = optim.betas
    return first, second


def _sgd(model: nn.Module, optim: Optim, device: torch.device) -> list[Recipe]:
    import torch

    matrices, outputs, rest = split_parameters(model)
    groups = decay_groups(matrices + outputs, rest, optim)
    # there is no fused form for DTensors
    whole = not any(hasattr(each, "placements") for group in groups for each in group["params"])
    options = {"lr": optim.lr, "momentum": optim.momentum, "fused": whole and _has_fused(groups)}
    return [Recipe(torch.optim.SGD, groups, options)]


def _muon(model: nn.Module, optim: Optim, device: torch.device) -> list[Recipe]:
    """Muon for the matrices, AdamW for all else, the layers named in a module's `output_layers` included."""
    import torch

    from trainer.optim.muon import Muon

    matrices, outputs, rest = split_parameters(model)
    flat = [parameter for parameter in matrices if parameter.ndim == 2]
    others = [parameter for parameter in matrices if parameter.ndim != 2] + outputs
    groups: list[Group] = [{"params": flat, "weight_decay": optim.weight_decay}] if flat else []
    half = optim.matrix_precision == "bf16" or (optim.matrix_precision == "auto" and device.type == "cuda")
    dtype = torch.bfloat16 if half else torch.float32
    options = {"lr": optim.matrix_lr, "momentum": optim.momentum, "device": device, "dtype": dtype}
    return [Recipe(Muon, groups, options), _adamw_recipe(others, rest, optim)]


def _lion(model: nn.Module, optim: Optim, device: torch.device) -> list[Recipe]:
    from trainer.optim.lion import Lion

    matrices, outputs, rest = split_parameters(model)
    return [Recipe(Lion, decay_groups(matrices + outputs, rest, optim), {"lr": optim.lr, "betas": _betas(optim)})]


def _adafactor(model: nn.Module, optim: Optim, device: torch.device) -> list[Recipe]:
    from trainer.optim.adafactor import Adafactor

    matrices, outputs, rest = split_parameters(model)
    return [Recipe(Adafactor, decay_groups(matrices + outputs, rest, optim), {"lr": optim.lr})]


def _schedule_free(model: nn.Module, optim: Optim, device: torch.device) -> list[Recipe]:
    from trainer.optim.schedule_free import ScheduleFreeAdamW

    matrices, outputs, rest = split_parameters(model)
    options = {"lr": optim.lr, "betas": _betas(optim), "eps": optim.eps}
    return [Recipe(ScheduleFreeAdamW, decay_groups(matrices + outputs, rest, optim), options)]


OPTIMIZERS: dict[str, Callable[[nn.Module, Optim, torch.device], list[Recipe]]] = {
    "adamw": _adamw,
    "sgd": _sgd,
    "muon": _muon,
    "lion": _lion,
    "adafactor": _adafactor,
    "schedule_free": _schedule_free,
}


def _has_fused(groups: list[Group]) -> bool:
    """Fused beats both other forms on CPU too: AdamW on one core 0.055 ms against 0.167 (foreach) and 0.178 (a loop)
    for 9 thousand weights, 5.3 ms against 18.4 and 35.1 for 8.4 million.
    """
    return all(each.device.type in ("cpu", "cuda") for group in groups for each in group["params"])


def _own(model: nn.Module, optim: Optim) -> list[torch.optim.Optimizer]:
    from torch.optim import Optimizer

    from trainer.user_code import describe, load_object

    build = load_object(optim.build, "optim.build")
    if not callable(build):
        raise UserError(
            f"optim.build: {optim.build} is not a function", "Name a function that takes (model, optim).", 2
        )
    try:
        built = build(model, optim)
    except Exception as error:
        raise UserError(
            f"optim.build: {optim.build} raised {describe(error)}",
            "Correct it; it is called with (model, config.optim). --traceback shows the whole traceback.",
            2,
        ) from error
    found = list(built) if isinstance(built, list | tuple) else [built]
    if not found or not all(isinstance(optimizer, Optimizer) for optimizer in found):
        raise UserError(
            f"{optim.build} returned {type(built).__name__}, not a torch optimizer",
            "Return a torch.optim.Optimizer or a list of them from the function of optim.build.",
            2,
        )
    return found
