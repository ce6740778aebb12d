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
from trainer.checkpoint.names import plain_names
from trainer.checkpoint.optimizer import load_optimizer, save_optimizer
from trainer.checkpoint.parts import gathered
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
    "weights_digest",
]

MODEL_FILE = "model.pt"
_FIX = "use the [model] section that it was saved with, or another --run.folder"


def save_model(folder: Path, model: nn.Module, write: bool = True, stages: "ProcessGroup | None" = None) -> None:
    """Writes `model.pt`: parameters and persistent buffers under the model's own names, tied weights once.

    Collective where the model is sharded or cut into pipeline `stages`; `write`: whether this rank is the one that
    writes. UserError when the disk refuses.
    """
    state = _state(model, write, stages)
    if write:
        tensors.save(folder / MODEL_FILE, state)


def load_model(folder: Path, model: nn.Module) -> None:
    """Copies saved weights into `model`; names, shapes and types must be the same.

    Everything is compared before anything is copied. UserError (status 2) names the first difference.
    """
    saved = tensors.load(folder / MODEL_FILE)
    own = model.state_dict()
    names = plain_names(model, own)
    _compare(folder, saved, {plain: own[name] for name, plain in names.items()})
    model.load_state_dict({name: saved[plain] for name, plain in names.items()}, strict=True)


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
            raise UserError(f"{what}: it has {name}, which this model has not", _FIX, 2)
    for name, value in own.items():
        theirs = saved[name]
        if not isinstance(value, torch.Tensor) or not isinstance(theirs, torch.Tensor):
            continue  # what a module's get_extra_state gave: its own business
        if theirs.shape != value.shape:
            raise UserError(f"{what}: its {name} has shape {_shape(theirs)}, this model's {_shape(value)}", _FIX, 2)
        if theirs.dtype != value.dtype:
            fix = "use the [model] and [precision] sections that it was saved with, or another --run.folder"
            raise UserError(f"{what}: its {name} is {theirs.dtype}, this model's {value.dtype}", fix, 2)


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(str(size) for size in tensor.shape) or "()"
