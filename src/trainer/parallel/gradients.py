"""Sharded gradients as one vector, of which each rank holds parts."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def own_parts(gradients: Sequence[Tensor]) -> list[Tensor]:
    """What this rank holds of them; changing it changes them."""
    return [each.to_local() if isinstance(each, DTensor) else each for each in gradients]


def total_norm(gradients: Sequence[Tensor], holders: int, device: torch.device) -> float:
    """Euclidean norm of all of them together, over all ranks, which call it together; `holders`: how many of them hold
    each tensor or parts of it. What several ranks hold alike counts once."""
    by_share: dict[float, list[Tensor]] = {}
    for each, own in zip(gradients, own_parts(gradients), strict=True):
        parts = 1
        if isinstance(each, DTensor):
            for placement, size in zip(each.placements, each.device_mesh.shape, strict=True):
                parts *= size if placement.is_shard() else 1
        by_share.setdefault(parts / holders, []).append(own)
    squares = torch.zeros((), dtype=torch.float64, device=device)
    for share, tensors in by_share.items():
        squares += torch.nn.utils.get_total_norm(tensors, foreach=True).double().square() * share
    torch.distributed.all_reduce(squares)
    return float(squares.sqrt())
