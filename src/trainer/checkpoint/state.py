"""What a run's state is: the model's weights, the optimizers' state and every rank's random state, a file each.

Each `save_*` writes into a folder from `Store.begin`; each `load_*` reads from a checkpoint that was verified.
Counters, the loss scale and the data cursor are plain numbers and travel in the manifest's `meta`.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainer.checkpoint import tensors
from trainer.checkpoint.manifest import has_file
from trainer.checkpoint.names import plain_names
from trainer.checkpoint.optimizer import load_optimizer, save_optimizer
from trainer.checkpoint.parts import gathered, is_part, part_like
from trainer.checkpoint.random_state import load_rank_state, save_rank_state
from trainer.checkpoint.stages import joined, keeps
from trainer.errors import UserError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = [
    "load_model",
    "load_optimizer",
    "load_rank_state",
    "save_model",
    "save_optimizer",
    "save_rank_state",
    "saved_parameters",
    "weights_digest",
]

MODEL_FILE = "model.pt"
TRAINED_FILE = "trained.pt"
_FIX = "Use the [model] section that it was saved with, or choose another --run.folder."


def save_model(
    folder: Path,
    model: nn.Module,
    write: bool = True,
    stages: "ProcessGroup | None" = None,
    file: str = MODEL_FILE,
) -> None:
    """Writes `model.pt`: parameters and persistent buffers under the model's own names, tied weights once. Where
    averages are used of a run, these are there, and the weights that training goes on with are in `trained.pt`.

    Collective where the model is sharded or cut into pipeline `stages`; `write`: whether this rank is the one that
    writes. UserError when the disk refuses.
    """
    state = _state(model, write, stages)
    if write:
        tensors.save(folder / file, state)


def load_model(folder: Path, model: nn.Module, training: bool = False, stage: bool = False) -> None:
    """Copies saved weights into `model`, of sharded ones this rank's part; names, shapes and types must be the same.
    `training`: those that training goes on with, where other ones are used of it. `stage`: the model lacks what other
    ranks have.

    Everything is compared before anything is copied. UserError (status 2) names the first difference.
    """
    saved = tensors.load(folder, TRAINED_FILE if training and has_average(folder) else MODEL_FILE)
    own = model.state_dict()
    names = plain_names(model, own)
    known = {name: saved[name] for name in names.values() if name in saved} if stage else saved
    _compare(folder, known, {plain: own[name] for name, plain in names.items()})
    parts = {name: saved[plain] for name, plain in names.items()}
    parts.update({name: part_like(parts[name], own[name]) for name in parts if is_part(own[name])})
    model.load_state_dict(parts, strict=True)


def has_average(folder: Path) -> bool:
    """Return whether the weights in `model.pt` are averages, and those that are trained lie beside them."""
    return has_file(folder, TRAINED_FILE)


def saved_parameters(folder: Path, model: nn.Module) -> dict[nn.Parameter, torch.Tensor]:
    """What `model.pt` has for each parameter of a model that `load_model` accepts it for, cut as that is."""
    saved = tensors.load(folder, MODEL_FILE)
    own = dict(model.named_parameters())
    found: dict[nn.Parameter, torch.Tensor] = {}
    with tensors.understood(folder, MODEL_FILE):
        for name, plain in plain_names(model, own).items():
            parameter: Any = own[name]
            found[parameter] = part_like(saved[plain], parameter) if is_part(parameter) else saved[plain]
    return found


def weights_digest(model: nn.Module, stages: "ProcessGroup | None" = None) -> str:
    """Hexadecimal SHA-256 over name, type, shape and bytes of every saved tensor, in the order of the names.

    Equal for bit-identical weights, whatever wraps the model and wherever it lies. Collective where it is sharded; of a
    pipeline's `stages` the first rank's counts.
    """
    digest = hashlib.sha256()
    for name, value in sorted(_state(model, True, stages).items()):
        if isinstance(value, torch.Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(flat.numpy().data)
    return digest.hexdigest()


def _state(model: nn.Module, keep: bool, stages: "ProcessGroup | None") -> dict[str, Any]:
    state = model.state_dict()
    kept = keeps(keep, stages)
    own = gathered({plain: state[name] for name, plain in plain_names(model, state).items()}, kept)
    return joined(own, stages) if kept else own


def _compare(folder: Path, saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    what = f"the checkpoint {folder} is of another model"
    for name in own:
        if name not in saved:
            raise UserError(f"{what}: it has no {name}", _FIX, 2)
    for name in saved:
        if name not in own:
            raise UserError(f"{what}: it has {name}, which this model does not have", _FIX, 2)
    for name, value in own.items():
        theirs = saved[name]
        if isinstance(value, torch.Tensor) != isinstance(theirs, torch.Tensor):
            raise UserError(
                f"{what}: its {name} is {type(theirs).__name__}, this model's {type(value).__name__}", _FIX, 2
            )
        if not isinstance(value, torch.Tensor) or not isinstance(theirs, torch.Tensor):
            continue  # what a module's get_extra_state gave: its own business
        if theirs.shape != value.shape:
            raise UserError(f"{what}: its {name} has shape {_shape(theirs)}, this model's {_shape(value)}", _FIX, 2)
        if theirs.dtype != value.dtype:
            fix = "Use the [model] and [precision] sections that it was saved with, or choose another --run.folder."
            raise UserError(f"{what}: its {name} is {theirs.dtype}, this model's {value.dtype}", fix, 2)


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(str(size) for size in tensor.shape) or "()"
