"""Batches to the device of a rank."""

from typing import Any

import torch


def moved(batch: Any, device: torch.device) -> Any:
    """The batch (a tensor, or tuples, lists and dicts of them) on `device`; from page-locked memory without waiting."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=batch.is_pinned())
    if isinstance(batch, dict):
        return type(batch)({name: moved(value, device) for name, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(value, device) for value in batch)
    return batch
