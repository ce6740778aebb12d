"""Batches to the device of a rank."""

from typing import Any

import torch

from trainer.data.pinning import map_tensors


def moved(batch: Any, device: torch.device, weights: torch.dtype = torch.float32) -> Any:
    """Return the batch (a tensor, or tuples, lists and dicts of them) on `device`; from page-locked memory without
    waiting.

    Floating-point values meet weights of their own format: where the `weights` are fp64, they all become fp64; else
    those that are fp64, as numpy makes them, become fp32.
    """
    own = torch.float64 if weights == torch.float64 else torch.float32

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(own) if _unfit(tensor, own) else tensor

    if _any_unfit(batch, own):
        batch = map_tensors(cast, batch)
    if device.type == "cpu":
        return batch
    return map_tensors(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()), batch)


def _unfit(tensor: torch.Tensor, own: torch.dtype) -> bool:
    return tensor.is_floating_point() and tensor.dtype != own and torch.float64 in (tensor.dtype, own)


def _any_unfit(batch: Any, own: torch.dtype) -> bool:
    if isinstance(batch, torch.Tensor):
        return _unfit(batch, own)
    if isinstance(batch, dict | list | tuple):
        return any(_any_unfit(each, own) for each in (batch.values() if isinstance(batch, dict) else batch))
    return False
