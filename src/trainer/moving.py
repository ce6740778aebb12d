"""Batches to the device of a rank."""

from typing import Any

import torch

from trainer.data.pinning import map_tensors


def moved(batch: Any, device: torch.device) -> Any:
    """The batch (a tensor, or tuples, lists and dicts of them) on `device`; from page-locked memory without waiting."""
    if device.type == "cpu":
        return batch
    return map_tensors(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()), batch)
