"""Batch norms over several ranks: running statistics as one process would have them.

A batch norm normalizes by the statistics of the micro-batch that it sees, on every rank its own. Its running statistics
are, in one process, m * sum of s_g * (1 - m)^(G - 1 - g) over the groups g = 0..G-1 that it saw, and what was there at
first times (1 - m)^G. Micro-batch j of rank r of W is group j * W + r of one process with micro-batches of the same
size, so each rank lets its own decay by (1 - m)^W a group, and what one process would have is a weighted sum of the
ranks', which only evaluation and saving need.
"""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.modules.batchnorm import _BatchNorm

from trainer.parallel.sync_batch_norm import SyncBatchNorm


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """All that keep running statistics."""
    found = [each for each in model.modules() if isinstance(each, _BatchNorm)]
    return [each for each in found if each.track_running_stats and each.running_mean is not None]


@contextlib.contextmanager
def idle(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """A forward whose samples count nothing: it leaves running statistics alone; synchronized norms still take part,
    so that nobody waits."""
    before = [each.training for each in norms]
    for each in norms:
        if isinstance(each, SyncBatchNorm):
            each.counted = False
        else:
            each.training = False
    try:
        yield
    finally:
        for each, training in zip(norms, before, strict=True):
            each.training = training
            if isinstance(each, SyncBatchNorm):
                each.counted = True


class Statistics:
    """Running statistics of `norms`, of which each rank of `group` (None: all ranks) sees other micro-batches. All
    begin with the same, and the ranks see micro-batches in turns, the first rank the first.

    Norms that average over all they saw (momentum None) are exact where every rank saw equally many.
    """

    def __init__(self, norms: Sequence[_BatchNorm], group: ProcessGroup | None = None) -> None:
        self.norms = [each for each in norms if not isinstance(each, SyncBatchNorm)]
        self.group = group
        self.rank = torch.distributed.get_rank(group)
        self.ranks = torch.distributed.get_world_size(group)
        self.momenta = [each.momentum for each in self.norms]
        for norm, momentum in zip(self.norms, self.momenta, strict=True):
            if momentum is not None:
                norm.momentum = 1 - (1 - momentum) ** self.ranks
        self._begin()

    @torch.no_grad()
    def settle(self) -> None:
        """Every rank's become those of one process. Collective."""
        if not self.norms:
            return
        seen = [int(_counter(norm)) - before for norm, before in zip(self.norms, self._seen, strict=True)]
        counts = torch.tensor(seen, dtype=torch.float64, device=self._before[0].device)
        torch.distributed.all_reduce(counts, group=self.group)
        totals = [int(count) for count in counts.tolist()]
        whole = torch.cat([self._own(number, seen[number], totals[number]) for number in range(len(seen))])
        torch.distributed.all_reduce(whole, group=self.group)
        parts = torch.split(whole, [len(before) for before in self._before])
        for norm, part, momentum, others in zip(
            self.norms, parts, self.momenta, (a - b for a, b in zip(totals, seen, strict=True)), strict=True
        ):
            assert norm.running_mean is not None and norm.running_var is not None
            mean, variance = part.to(norm.running_mean.dtype).chunk(2)
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(variance)
            if momentum is not None:
                _counter(norm).add_(others)
        self._begin()

    def _begin(self) -> None:
        self._before = [_flat(norm) for norm in self.norms]
        self._seen = [int(_counter(norm)) for norm in self.norms]

    def _own(self, number: int, mine: int, total: int) -> Tensor:
        """This rank's part of the sum for one norm: `mine` of the `total` groups that all have seen since it began."""
        norm, momentum, before = self.norms[number], self.momenta[number], self._before[number]
        if not total or momentum == 0:
            return before / self.ranks
        if momentum is None:
            return _flat(norm) / self.ranks
        keep = 1 - momentum
        part = before * (keep**total / self.ranks)
        if mine:
            here = keep**self.ranks
            behind = total - 1 - self.rank - self.ranks * (mine - 1)  # groups of all since the last of this rank
            part = part + (_flat(norm) - before * here**mine) * (momentum * keep**behind / (1 - here))
        return part


def _flat(norm: _BatchNorm) -> Tensor:
    assert norm.running_mean is not None and norm.running_var is not None
    return torch.cat((norm.running_mean, norm.running_var)).double()


def _counter(norm: _BatchNorm) -> Tensor:
    assert norm.num_batches_tracked is not None
    return norm.num_batches_tracked
