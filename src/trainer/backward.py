"""Forward and backward of the micro-batches of one update."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

Loss = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]
Context = contextlib.AbstractContextManager[Any]


class LossModule(nn.Module):
    """A model and its loss as one module, the unit that data parallelism wraps: forward(batch) -> (sum, count)."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Sum of the loss over the counted items, and their number, both scalars."""
        return self.loss(self.model, batch)


class Backward(Protocol):
    """What leaves an update's gradients behind."""

    def __call__(
        self, micro_batches: Sequence[tuple[Any, int]], weight: float, autocast: Context
    ) -> list[tuple[Tensor, Tensor]]:
        """Forward and backward of (batch, number of real samples) pairs; 0 real samples count for nothing.

        The gradients, of `weight` times the sum of losses, are averaged over the ranks that see other samples and lie
        in `.grad`. The result: (sum, count) of each real micro-batch that this rank counts for all.
        """


class Accumulate:
    """One micro-batch after the other, through all of the model; gradients are exchanged in the last one's backward
    only: the others run within `no_sync`; `idle`: around those that count nothing. `counts`: whether this rank's sums
    are not also another's. `check`: called when the gradients are there. `summed`: called with the result before the
    last backward, so that it can be on its way meanwhile."""

    def __init__(
        self,
        module: nn.Module,
        no_sync: Callable[[], Context],
        counts: bool = True,
        check: Callable[[], None] | None = None,
        idle: Callable[[], Context] = contextlib.nullcontext,
    ) -> None:
        self.module = module
        self.no_sync = no_sync
        self.counts = counts
        self.check = check
        self.idle = idle
        self.summed: Callable[[list[tuple[Tensor, Tensor]]], None] | None = None
        self._seeds: dict[float, Tensor] = {}

    def __call__(
        self, micro_batches: Sequence[tuple[Any, int]], weight: float, autocast: Context
    ) -> list[tuple[Tensor, Tensor]]:
        sums = []
        last = len(micro_batches) - 1
        for index, (batch, real) in enumerate(micro_batches):
            # the forward belongs inside too: DDP decides there whether its backward will synchronize
            with (
                contextlib.nullcontext() if index == last else self.no_sync(),
                contextlib.nullcontext() if real else self.idle(),
            ):
                with autocast:
                    total, count = self.module(batch)
                if real and self.counts:
                    sums.append((total.detach(), count))
                if index == last and self.summed is not None:
                    self.summed(sums)
                # the factor goes in as the loss's own gradient: two operations fewer than a product
                total.backward(self._seed(weight if real else 0.0, total))
        if self.check is not None:
            self.check()
        return sums

    def _seed(self, weight: float, total: Tensor) -> Tensor:
        """`weight` as the gradient that backward starts from; made once as long as it stays the same."""
        kept = self._seeds.get(weight)
        if kept is None or kept.dtype != total.dtype:
            self._seeds.clear()
            kept = self._seeds[weight] = torch.full((), weight, dtype=total.dtype, device=total.device)
        return kept
