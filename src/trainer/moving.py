"""Batches to the device of a rank."""

from typing import Any

import torch

from trainer.data.pinning import map_tensors


def moved(batch: Any, device: torch.device, weights: torch.dtype = torch.float32) -> Any:
    """Return the batch (a tensor, or tuples, lists and dicts of them) on `device`; from page-locked memory without
    waiting.

    Where the `weights` are fp64, floating-point values become fp64 too, which loses nothing: data sets give fp32.
    """
    if weights == torch.float64:
        batch = map_tensors(_widened, batch)
    if device.type == "cpu":
        return batch
    return map_tensors(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()), batch)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
