"""One optimizer update: accumulate, reduce, unscale, clip, step. No I/O; no rank decides anything alone."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer.backward import Accumulate
from trainer.optim import Optimizers
from trainer.precision import Policy

if TYPE_CHECKING:
    from trainer.parallel import Parallelized

# (sum of the loss, counted items) of each micro-batch
Sums = list[tuple[Tensor, Tensor]]
# looks at the gradients: (factor they are to be multiplied with, ranks that hold each, device) -> what it saw
# what a rank asks for travels as one number of the reduction: how many ranks want to stop, and this for each that wants
# to save
SAVE = 2.0**30
Look = Callable[[float, int, torch.device], dict[str, object]]


class Outcome:
    """What one update did.

    `loss`: mean over the counted items of all ranks; `grad_norm`: before clipping; `stop`, `save`: some rank asked for
    it; `seen`: what was asked to be looked at.
    """

    __slots__ = ("applied", "count", "grad_norm", "loss", "save", "seen", "stop")

    def __init__(
        self, loss: float, count: int, grad_norm: float, applied: bool, asked: float, seen: dict[str, object]
    ) -> None:
        self.loss = loss
        self.count = count
        self.grad_norm = grad_norm
        self.applied = applied
        self.stop = asked % SAVE > 0
        self.save = asked >= SAVE
        self.seen = seen


class Step:
    """Runs updates of one model, cut as `cut` says; more ranks than one need an initialized process group.

    The gradient is that of (sum of losses) / (number of counted items) over all ranks and micro-batches. The loss is
    divided by `divisor`, what the update is expected to count, before backward; where ragged data counts another
    number, the exact factor is applied to the gradients together with unscaling and clipping, in the one pass over
    them that clipping costs anyway.
    """

    def __init__(
        self, cut: "Parallelized", optimizers: Optimizers, policy: Policy, device: torch.device, *, clip: float
    ) -> None:
        self.cut = cut
        self.optimizers = optimizers
        self.policy = policy
        self.device = device
        self.clip = clip
        self.ranks = cut.layout.world_size
        self.parameters = [p for p in cut.module.parameters() if p.requires_grad]
        self._autocast = policy.autocast(device.type)
        self._asked = 0.0
        self._begun: tuple[Tensor, torch.distributed.Work | None] | None = None
        if self.ranks > 1 and isinstance(cut.backward, Accumulate):
            cut.backward.summed = self._begin

    def __call__(
        self,
        micro_batches: Sequence[tuple[Any, int]],
        divisor: float,
        multiplier: float,
        stop: bool,
        look: Look | None = None,
        save: bool = False,
    ) -> Outcome:
        """Applies one update made of (batch, number of real samples) pairs; 0 real samples count for nothing.

        `multiplier`: the learning rate as a share of its peak; `stop`: this rank was asked to stop; `save`: its clock
        says that a checkpoint is due; `look`: at the gradients of this update. The outcome is the same on all ranks.
        """
        scale = self.policy.scale.scale if self.policy.scale else 1.0
        # backward averages over the ranks that see other tokens; what is wanted is the sum
        self._asked = stop + SAVE * save
        sums = self.cut.backward(micro_batches, self.cut.layout.averaged * scale / divisor, self._autocast)
        if self.cut.layout.tensor > 1:
            from trainer.parallel.gradients import add_up

            add_up(self.parameters)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        loss_sum, count, asked, norm = self._reduce(sums, gradients)
        factor = divisor / count / scale if count else 0.0
        norm *= factor
        loss = loss_sum / count if count else math.nan
        applied = math.isfinite(norm) and math.isfinite(loss)
        seen = look(factor, self.cut.layout.holders, self.device) if look is not None else {}
        if applied:
            if self.clip and norm > self.clip:
                factor *= self.clip / (norm + 1e-6)
            if factor != 1.0:
                torch._foreach_mul_(self._own(gradients), factor)
            self.optimizers.set_lr(multiplier)
            self.optimizers.step()
        self.optimizers.zero_grad()
        if self.policy.scale:
            if applied:
                self.policy.scale.applied()
            elif count:  # an update in which nothing counts says nothing about the scale
                self.policy.scale.overflowed()
        return Outcome(loss, int(count), norm, applied, asked, seen)

    def _own(self, gradients: list[Tensor]) -> list[Tensor]:
        """What this rank holds of them."""
        if self.cut.sharded:
            from trainer.parallel.gradients import own_parts

            return own_parts(gradients)
        return gradients

    def _reduce(self, sums: Sums, gradients: list[Tensor]) -> tuple[float, float, float, float]:
        """Over all ranks: loss sum, count, what was asked for; the Euclidean norm of all gradients as they stand."""
        if not self.cut.sharded:
            norm = float(torch.nn.utils.get_total_norm(gradients, foreach=True)) if gradients else 0.0
            if self.ranks == 1 and len(sums) == 1:
                return float(sums[0][0]), float(sums[0][1]), self._asked, norm
            if self._begun is None:
                self._begin(sums)
            loss_sum, count, asked, _ = self._end()
            return loss_sum, count, asked, norm
        from trainer.parallel.gradients import squares

        if self.cut.counted_elsewhere:
            counted = [p for p in self.parameters if p not in self.cut.counted_elsewhere]
            gradients = [p.grad for p in counted if p.grad is not None]
        own = squares(gradients, self.cut.layout.holders, self.device)
        together = self._begun is None  # a pipeline, which knows the loss no sooner
        if together:
            self._begin(sums, own)
        else:
            torch.distributed.all_reduce(own)
        loss_sum, count, asked, square = self._end()
        return loss_sum, count, asked, math.sqrt(square if together else float(own))

    def _begin(self, sums: Sums, squares: Tensor | None = None) -> None:
        """Begins the one small reduction of an update. Where the sums are known before a backward, it is through by
        the end of that and costs nothing; else the squares of gradients go with it."""
        totals = torch.zeros(4, dtype=torch.float64, device=self.device)
        for total, count in sums:
            totals[0] += total
            totals[1] += count
        totals[2] = self._asked
        if squares is not None:
            totals[3] = squares
        work = None
        if self.ranks > 1 and self.device.type == "cpu":
            # gloo's all-reduce of four numbers takes three times as long as handing them to all
            everyone = torch.empty(4 * self.ranks, dtype=torch.float64)
            work = torch.distributed.all_gather_into_tensor(everyone, totals, async_op=True)
            totals = everyone
        elif self.ranks > 1:
            work = torch.distributed.all_reduce(totals, async_op=True)
        self._begun = totals, work

    def _end(self) -> list[float]:
        assert self._begun is not None
        (totals, work), self._begun = self._begun, None
        if work is not None:
            work.wait()
        return totals.view(-1, 4).sum(0).tolist()
