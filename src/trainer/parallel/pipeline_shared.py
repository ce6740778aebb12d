"""Gradients that more ranks than one have a part of, summed once after a pipeline's schedule."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainer.parallel.gradients import own_parts

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Shared:
    """Weights that stages on several ranks use, an embedding tied to the output layer for one: all have a copy, whose
    gradient is the sum of all uses. Made of the whole model. `holders`: name -> pipeline ranks."""

    def __init__(self, model: nn.Module, holders: Mapping[str, tuple[int, ...]], group: "ProcessGroup") -> None:
        self.model = model
        self.holders = dict(holders)
        self.group = group
        parameters = {name: model.get_parameter(name) for name in holders}
        forms = {name: (each.shape, each.grad_dtype or each.dtype) for name, each in parameters.items()}
        # of ranks that have none of it, to take part where neither all nor two have it
        self._forms = forms

    def counted_elsewhere(self) -> frozenset[nn.Parameter]:
        """Those of this rank that another's norm counts."""
        rank = self.group.rank()
        return frozenset(
            self.model.get_parameter(name) for name, at in self.holders.items() if rank in at and rank != at[0]
        )

    def sum(self) -> None:
        """Every copy has the whole gradient afterwards, the same bits."""
        rank = self.group.rank()
        for name, at in self.holders.items():
            if len(at) == 2:
                if rank in at:
                    self._exchange(self._gradient(name), at[1] if rank == at[0] else at[0])
            else:
                dist.all_reduce(self._gradient(name) if rank in at else self._nothing(name), group=self.group)

    def _exchange(self, own: Tensor, other: int) -> None:
        theirs = torch.empty_like(own)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, own, group=self.group, group_peer=other),
                dist.P2POp(dist.irecv, theirs, group=self.group, group_peer=other),
            ]
        )
        for work in works:
            work.wait()
        own += theirs

    def _gradient(self, name: str) -> Tensor:
        parameter: Any = self.model.get_parameter(name)
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, dtype=parameter.grad_dtype)
        if isinstance(parameter, DTensor) and parameter.grad.placements != parameter.placements:
            # the two uses leave it summed up in different ways
            parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
        return own_parts([parameter.grad])[0]

    def _nothing(self, name: str) -> Tensor:
        shape, dtype = self._forms[name]
        return torch.zeros(shape, dtype=dtype, device=next(self.model.parameters()).device)


def sum_in_buckets(gradients: Sequence[Tensor], group: "ProcessGroup", bucket_mb: int) -> None:
    """Adds up each gradient over the ranks of `group`, in place, some at a time as one message."""
    bucket: list[Tensor] = []
    size = 0
    for each in own_parts(gradients):
        if bucket and (size + each.nbytes > bucket_mb << 20 or each.dtype != bucket[0].dtype):
            _sum(bucket, group)
            bucket, size = [], 0
        bucket.append(each)
        size += each.nbytes
    if bucket:
        _sum(bucket, group)


def _sum(bucket: Sequence[Tensor], group: "ProcessGroup") -> None:
    if len(bucket) == 1 and bucket[0].is_contiguous():
        dist.all_reduce(bucket[0], group=group)
        return
    flat = torch.cat([each.reshape(-1) for each in bucket])
    dist.all_reduce(flat, group=group)
    parts = torch.split(flat, [each.numel() for each in bucket])
    torch._foreach_copy_(list(bucket), [part.view_as(each) for part, each in zip(parts, bucket, strict=True)])
