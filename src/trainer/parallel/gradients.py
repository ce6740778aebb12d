"""Sharded gradients as one vector, of which each rank holds parts."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def own_parts(gradients: Sequence[Tensor]) -> list[Tensor]:
    """What this rank holds of them; changing it changes them."""
    return [each.to_local() if isinstance(each, DTensor) else each for each in gradients]


def share(tensor: Tensor, holders: int) -> float:
    """What this rank's part of a tensor counts in a sum over all ranks, of which `holders` have it or parts of it, so
    that what several hold alike counts once."""
    parts = 1
    if isinstance(tensor, DTensor):
        for placement, size in zip(tensor.placements, tensor.device_mesh.shape, strict=True):
            parts *= size if placement.is_shard() else 1
    return parts / holders


def total_norm(gradients: Sequence[Tensor], holders: int, device: torch.device) -> float:
    """Euclidean norm of all of them together, over all ranks, which call it together; `holders`: how many of them hold
    each tensor or parts of it. What several ranks hold alike counts once."""
    by_share: dict[float, list[Tensor]] = {}
    for each, own in zip(gradients, own_parts(gradients), strict=True):
        by_share.setdefault(share(each, holders), []).append(own)
    squares = torch.zeros((), dtype=torch.float64, device=device)
    for counted, tensors in by_share.items():
        squares += torch.nn.utils.get_total_norm(tensors, foreach=True).double().square() * counted
    torch.distributed.all_reduce(squares)
    return float(squares.sqrt())
