"""Matrices cut by rows over ranks: each is brought together on one of them, and what was made of it cut again."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as distributed
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor, Shard


def row_ranks(matrix: DTensor) -> ProcessGroup | None:
    """The ranks that hold the rows of `matrix` between them; None where it is cut in another way, or not at all."""
    mesh = matrix.device_mesh
    cut = [
        dimension
        for dimension, (placement, size) in enumerate(zip(matrix.placements, mesh.shape, strict=True))
        if size > 1 and not placement.is_replicate()
    ]
    if len(cut) != 1 or type(matrix.placements[cut[0]]) is not Shard or not matrix.placements[cut[0]].is_shard(0):
        return None
    return mesh.get_group(cut[0])


def once_each(
    parts: Sequence[Tensor], rows: Sequence[int], ranks: ProcessGroup, work: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """This rank's rows of work(matrix) for each matrix, of which `parts` are this rank's rows and `rows` all its rows.

    No more matrices than ranks, the n-th of which works on the n-th. `work` keeps shape and type. Each matrix travels
    twice, once to where it is worked on and once back, instead of to all.
    """
    size, rank = distributed.get_world_size(ranks), distributed.get_rank(ranks)
    assert len(parts) <= size
    held = [part.numel() for part in parts] + [0] * (size - len(parts))
    arriving = [0] * size
    if rank < len(parts):
        arriving = [count * parts[rank].shape[1] for count in _rows_of_each(rows[rank], size)]
    flat = torch.cat([part.reshape(-1) for part in parts])
    mine = flat.new_empty(sum(arriving))
    distributed.all_to_all_single(mine, flat, arriving, held, group=ranks)
    if rank < len(parts):
        mine = work(mine.view(rows[rank], parts[rank].shape[1])).reshape(-1).contiguous()
    back = torch.empty_like(flat)
    distributed.all_to_all_single(back, mine, held, arriving, group=ranks)
    return [own.view_as(part) for own, part in zip(torch.split(back, held[: len(parts)]), parts, strict=True)]


def _rows_of_each(rows: int, size: int) -> list[int]:
    """As Shard(0) cuts: equal parts, the last ones shorter or empty."""
    most = -(-rows // size)
    return [max(0, min(most, rows - rank * most)) for rank in range(size)]
