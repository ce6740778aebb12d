"""The random state of one rank, in a file of its own: a value that differs between ranks must not share a name."""

import random
import sys
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint import tensors
from trainer.checkpoint.manifest import has_file


def _file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


def save_rank_state(folder: Path, rank: int) -> None:
    """Writes the states of Python's, NumPy's (if it is loaded), torch's and this rank's CUDA device's generators.

    UserError when the disk refuses.
    """
    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {
        "rank": rank,
        "python": {"version": version, "numbers": torch.tensor(numbers, dtype=torch.int64), "gauss": gauss},
        "torch": torch.get_rng_state(),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state["numpy"] = _to_tensors(numpy.random.get_state(legacy=False))
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch has it untyped
        state["cuda"] = torch.cuda.get_rng_state()
    tensors.save(folder / _file(rank), state)


def load_rank_state(folder: Path, rank: int) -> bool:
    """Puts the states of `rank` back. False, and nothing changed, when the checkpoint has none for it: it was saved by
    fewer ranks. A CUDA state is put back where there is a CUDA device."""
    if not has_file(folder, _file(rank)):
        return False
    state = tensors.load(folder, _file(rank))
    with tensors.understood(folder, _file(rank)):
        if state["rank"] != rank:
            raise ValueError(f"it is of rank {state['rank']}")
        python = state["python"]
        random.setstate((python["version"], tuple(python["numbers"].tolist()), python["gauss"]))
        torch.set_rng_state(state["torch"])
        if "numpy" in state:
            import numpy

            numpy.random.set_state(_to_arrays(state["numpy"]))
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])
    return True


def _to_tensors(value: Any) -> Any:
    """Arrays to tensors, inside dictionaries: what is loaded without running code."""
    if isinstance(value, dict):
        return {key: _to_tensors(each) for key, each in value.items()}
    if hasattr(value, "__array_interface__") and value.shape:
        return torch.from_numpy(value.copy())
    return value.item() if hasattr(value, "item") else value


def _to_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_arrays(each) for key, each in value.items()}
    return value.numpy() if isinstance(value, torch.Tensor) else value
