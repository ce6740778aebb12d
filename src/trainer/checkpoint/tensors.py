"""Values with tensors in them, to a file and back: the same content gives the same bytes."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint.durable import writing_to
from trainer.checkpoint.files import Damaged
from trainer.checkpoint.manifest import open_verified
from trainer.errors import UserError

_BUFFER_BYTES = 1 << 20
_FIX = "Use another checkpoint: `trainer checkpoints verify RUN_FOLDER` shows which ones are whole."


def save(path: Path, value: Any) -> None:
    """Writes nested dictionaries, lists, tuples, tensors and plain values, durably. UserError when the disk refuses.

    Tensors go to the host first; those that share memory (tied weights) still do in the file and when loaded.
    Written through a file object, whose archive is named alike whatever the path is called.
    """
    value = _canonical(value, _Host())
    with writing_to(path.parent), open(path, "wb", buffering=_BUFFER_BYTES) as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())


def load(folder: Path, name: str) -> dict[Any, Any]:
    """Return what `save` wrote into the file `name` of a checkpoint, on the host. No code of the file is run.

    Raises UserError if the file is missing, was changed after it was verified, or does not hold a dictionary of
    tensors and plain values.
    """
    try:
        with open_verified(folder, name) as file:
            value = torch.load(file, map_location="cpu", weights_only=True)
    except Damaged as problem:
        raise UserError(f"cannot load {folder / name}: it {problem.why}", _FIX) from problem
    except OSError as error:
        raise UserError(f"cannot load {folder / name}: {error.strerror}", _FIX) from error
    except Exception as error:  # whatever a file of another origin makes of the unpickler
        raise UserError(f"cannot load {folder / name}: it is not a file that this trainer wrote", _FIX) from error
    if not isinstance(value, dict):
        raise UserError(f"cannot load {folder / name}: it holds {type(value).__name__}, not a dictionary", _FIX)
    return value


@contextlib.contextmanager
def understood(folder: Path, name: str) -> Iterator[None]:
    """Raise a UserError that names the file if the block finds something else in it than this trainer saves."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        said = f"{type(error).__name__}: {error}"
        raise UserError(f"{folder / name} does not hold what this trainer saves there ({said})", _FIX) from error


class _Host:
    """Brings tensors to the host, each piece of memory once, and not a large one for a small part of it."""

    def __init__(self) -> None:
        self._storages: dict[tuple[torch.device, int], torch.UntypedStorage] = {}
        self._parts: dict[tuple[torch.device, int], int] = {}

    def count(self, tensor: torch.Tensor) -> None:
        key = self._key(tensor)
        self._parts[key] = self._parts.get(key, 0) + 1

    def bring(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        storage = tensor.untyped_storage()
        key = self._key(tensor)
        if self._parts.get(key, 1) == 1 and storage.nbytes() > tensor.numel() * tensor.element_size():
            return tensor.to("cpu", copy=True)  # a view of something larger that nothing else here shares
        if tensor.device.type == "cpu":
            return tensor
        if key not in self._storages:
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            self._storages[key] = whole.cpu().untyped_storage()
        empty = torch.empty(0, dtype=tensor.dtype)
        return empty.set_(self._storages[key], tensor.storage_offset(), tensor.size(), tensor.stride())

    @staticmethod
    def _key(tensor: torch.Tensor) -> tuple[torch.device, int]:
        return tensor.device, tensor.untyped_storage().data_ptr()


def _canonical(value: Any, host: _Host) -> Any:
    """A copy whose pickle depends on content only: pickle writes one object met twice unlike two equal ones."""
    _count(value, host)
    return _rebuild(value, host)


def _count(value: Any, host: _Host) -> None:
    if isinstance(value, torch.Tensor):
        host.count(value)
    elif isinstance(value, Mapping):
        for each in value.values():
            _count(each, host)
    elif isinstance(value, list | tuple):
        for each in value:
            _count(each, host)


def _rebuild(value: Any, host: _Host) -> Any:
    if isinstance(value, torch.Tensor):
        return host.bring(value)
    if isinstance(value, str):
        return sys.intern(str(value))
    if isinstance(value, Mapping):
        return {_rebuild(key, host): _rebuild(each, host) for key, each in value.items()}
    if isinstance(value, list):
        return [_rebuild(each, host) for each in value]
    if isinstance(value, tuple):
        return tuple(_rebuild(each, host) for each in value)
    return value
