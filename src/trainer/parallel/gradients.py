"""Sharded gradients as one vector, of which each rank holds parts."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial


def own_parts(gradients: Sequence[Tensor]) -> list[Tensor]:
    """What this rank holds of them; changing it changes them."""
    return [each.to_local() if isinstance(each, DTensor) else each for each in gradients]


def add_up(parameters: Sequence[Tensor]) -> None:
    """Gradients of which each rank has a summand (those of norms under sequence parallelism) become those of their
    parameters, in place: one reduction. Collective; FSDP has done so with its own."""
    found: list[tuple[DTensor, DTensor, Tensor]] = []
    for parameter in parameters:
        gradient = parameter.grad
        if not isinstance(parameter, DTensor):
            continue
        if isinstance(gradient, DTensor) and any(isinstance(each, Partial) for each in gradient.placements):
            assert gradient.device_mesh.ndim == 1, "gradients over data ranks too are reduced by what shards them"
            found.append((parameter, gradient, gradient.to_local()))
    if not found:
        return
    flat = torch.cat([own.reshape(-1) for _, _, own in found])
    torch.distributed.all_reduce(flat, group=found[0][1].device_mesh.get_group())
    for (parameter, gradient, own), whole in zip(
        found, torch.split(flat, [own.numel() for _, _, own in found]), strict=True
    ):
        parameter.grad = DTensor.from_local(
            whole.view_as(own), gradient.device_mesh, parameter.placements, run_check=False
        )


def share(tensor: Tensor, holders: int) -> float:
    """What this rank's part of a tensor counts in a sum over all ranks, of which `holders` have it or parts of it, so
    that what several hold alike counts once."""
    parts = 1
    if isinstance(tensor, DTensor):
        for placement, size in zip(tensor.placements, tensor.device_mesh.shape, strict=True):
            parts *= 1 if placement.is_replicate() else size  # a strided shard is none that `is_shard` knows
    return parts / holders


def squares(gradients: Sequence[Tensor], holders: int, device: torch.device) -> Tensor:
    """Sum of the squares of what this rank holds, fp64: added up over all ranks, the square of the Euclidean norm of
    all gradients together. `holders`: how many ranks hold each tensor or parts of it; what several hold alike counts
    once."""
    by_share: dict[float, list[Tensor]] = {}
    for each, own in zip(gradients, own_parts(gradients), strict=True):
        by_share.setdefault(share(each, holders), []).append(own)
    found = torch.zeros((), dtype=torch.float64, device=device)
    for counted, tensors in by_share.items():
        found += torch.nn.utils.get_total_norm(tensors, foreach=True).double().square() * counted
    return found
