"""One optimizer update: accumulate, reduce, unscale, clip, step. No I/O; no rank decides anything alone."""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainer.optim import Optimizers
from trainer.precision import Policy

Loss = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]


class LossModule(nn.Module):
    """A model and its loss as one module, the unit that data parallelism wraps: forward(batch) -> (sum, count)."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Sum of the loss over the counted items, and their number, both scalars."""
        return self.loss(self.model, batch)


class Outcome:
    """What one update did. `loss`: mean over the counted items of all ranks; `grad_norm`: before clipping."""

    __slots__ = ("applied", "count", "grad_norm", "loss", "stop")

    def __init__(self, loss: float, count: int, grad_norm: float, applied: bool, stop: bool) -> None:
        self.loss = loss
        self.count = count
        self.grad_norm = grad_norm
        self.applied = applied
        self.stop = stop


class Step:
    """Runs updates of one model. `data_ranks`: ranks that see samples of their own, over which backward averages the
    gradients, but within `no_sync`; more than one need an initialized process group and a `module` that does so.
    `sharded`: a rank holds parts of the weights and gradients.

    The gradient is that of (sum of losses) / (number of counted items) over all ranks and micro-batches. The loss is
    divided by `divisor`, what the update is expected to count, before backward; where ragged data counts another
    number, the exact factor is applied to the gradients together with unscaling and clipping, in the one pass over
    them that clipping costs anyway.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizers: Optimizers,
        policy: Policy,
        device: torch.device,
        *,
        clip: float,
        data_ranks: int = 1,
        no_sync: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
        sharded: bool = False,
    ) -> None:
        self.module = module
        self.optimizers = optimizers
        self.policy = policy
        self.device = device
        self.clip = clip
        self.data_ranks = data_ranks
        self.no_sync = no_sync
        self.sharded = sharded
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._autocast = policy.autocast(device.type)
        self._seeds: dict[float, Tensor] = {}

    def __call__(
        self, micro_batches: Sequence[tuple[Any, int]], divisor: float, multiplier: float, stop: bool
    ) -> Outcome:
        """Applies one update made of (batch, number of real samples) pairs; 0 real samples count for nothing.

        `multiplier`: the learning rate as a share of its peak; `stop`: this rank was asked to stop. The outcome is the
        same on all ranks.
        """
        sums = self._accumulate(micro_batches, divisor)
        loss_sum, count, stops = self._reduce(sums, stop)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        scale = self.policy.scale.scale if self.policy.scale else 1.0
        factor = divisor / count / scale if count else 0.0
        norm = self._norm(gradients) * factor
        loss = loss_sum / count if count else math.nan
        applied = math.isfinite(norm) and math.isfinite(loss)
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
            else:
                self.policy.scale.overflowed()
        return Outcome(loss, int(count), norm, applied, stops > 0)

    def _accumulate(self, micro_batches: Sequence[tuple[Any, int]], divisor: float) -> list[tuple[Tensor, Tensor]]:
        """Forward and backward of every micro-batch; gradients are exchanged in the last one's backward only."""
        # backward averages over ranks; what is wanted is the sum
        weight = self.data_ranks / divisor
        if self.policy.scale:
            weight *= self.policy.scale.scale
        sums = []
        last = len(micro_batches) - 1
        for index, (batch, real) in enumerate(micro_batches):
            # the forward belongs inside too: DDP decides there whether its backward will synchronize
            with contextlib.nullcontext() if index == last else self.no_sync():
                with self._autocast:
                    total, count = self.module(batch)
                # the factor goes in as the loss's own gradient: two operations fewer than a product
                total.backward(self._seed(weight if real else 0.0, total))
            if real:
                sums.append((total.detach(), count))
        return sums

    def _seed(self, weight: float, total: Tensor) -> Tensor:
        """`weight` as the gradient that backward starts from; made once as long as it stays the same."""
        kept = self._seeds.get(weight)
        if kept is None or kept.dtype != total.dtype:
            self._seeds.clear()
            kept = self._seeds[weight] = torch.full((), weight, dtype=total.dtype, device=total.device)
        return kept

    def _norm(self, gradients: list[Tensor]) -> float:
        """Euclidean norm of all gradients together, as they stand."""
        if not gradients:
            return 0.0
        if self.sharded:
            from trainer.parallel.gradients import total_norm

            return total_norm(gradients)
        return float(torch.nn.utils.get_total_norm(gradients, foreach=True))

    def _own(self, gradients: list[Tensor]) -> list[Tensor]:
        """What this rank holds of them."""
        if self.sharded:
            from trainer.parallel.gradients import own_parts

            return own_parts(gradients)
        return gradients

    def _reduce(self, sums: list[tuple[Tensor, Tensor]], stop: bool) -> tuple[float, float, float]:
        """(loss sum, count, ranks that want to stop) over all ranks: the one small reduction of an update."""
        if self.data_ranks == 1 and len(sums) == 1:
            return float(sums[0][0]), float(sums[0][1]), float(stop)
        totals = torch.zeros(3, dtype=torch.float64, device=self.device)
        for total, count in sums:
            totals[0] += total
            totals[1] += count
        totals[2] = float(stop)
        if self.data_ranks > 1:
            torch.distributed.all_reduce(totals)
        loss_sum, count, stops = totals.tolist()
        return loss_sum, count, stops
