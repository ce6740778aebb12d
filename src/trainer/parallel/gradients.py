"""Sharded gradients as one vector, of which each rank holds parts."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Replicate


def own_parts(gradients: Sequence[Tensor]) -> list[Tensor]:
    """What this rank holds of them; changing it changes them."""
    return [each.to_local() if isinstance(each, DTensor) else each for each in gradients]


def add_up(parameters: Sequence[Tensor]) -> None:
    """Gradients of which each rank has a summand (those of norms under sequence parallelism) become those of their
    parameters, in place: one reduction. Collective; FSDP has done so with its own."""
    found = []
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and any(isinstance(each, Partial) for each in gradient.placements):
            assert gradient.device_mesh.ndim == 1, "gradients over data ranks too are reduced by what shards them"
            found.append((parameter, gradient, gradient.to_local()))
    if not found:
        return
    flat = torch.cat([own.reshape(-1) for _, _, own in found])
    torch.distributed.all_reduce(flat, group=found[0][1].device_mesh.get_group())
    wholes = torch.split(flat, [own.numel() for _, _, own in found])
    for (parameter, gradient, own), whole in zip(found, wholes, strict=True):
        mesh = gradient.device_mesh
        parameter.grad = DTensor.from_local(whole.view_as(own), mesh, (Replicate(),), run_check=False)


def total_norm(gradients: Sequence[Tensor], holders: int, device: torch.device) -> float:
    """Euclidean norm of all of them together, over all ranks, which call it together; `holders`: how many of them hold
    each tensor or parts of it. What several ranks hold alike counts once."""
    by_share: dict[float, list[Tensor]] = {}
    for each, own in zip(gradients, own_parts(gradients), strict=True):
        parts = 1
        if isinstance(each, DTensor):
            for placement, size in zip(each.placements, each.device_mesh.shape, strict=True):
                parts *= 1 if placement.is_replicate() else size  # a strided shard is none that `is_shard` knows
        by_share.setdefault(parts / holders, []).append(own)
    squares = torch.zeros((), dtype=torch.float64, device=device)
    for share, tensors in by_share.items():
        squares += torch.nn.utils.get_total_norm(tensors, foreach=True).double().square() * share
    torch.distributed.all_reduce(squares)
    return float(squares.sqrt())
