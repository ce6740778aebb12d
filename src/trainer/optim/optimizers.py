"""Several optimizers as one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from trainer.optim.average import Average


class Optimizers:
    """One or more torch optimizers that step as one. The learning rates they come with are the peaks. `average`: of
    the weights, where one is kept. `apply`: steps them, where their own `step` is not all there is to do."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], average: Average | None = None) -> None:
        self.optimizers = list(optimizers)
        self.apply: Callable[[Sequence[torch.optim.Optimizer]], None] = step_each
        self.average = average
        self._peaks = [[float(group["lr"]) for group in optimizer.param_groups] for optimizer in self.optimizers]
        self._parameters: list[Tensor] = [
            parameter
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]

    def step(self) -> None:
        """Applies the gradients."""
        self.apply(self.optimizers)
        if self.average is not None:
            self.average.update()

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """The model has inside what is to be used of it: the averages where such are kept. Collective then."""
        return contextlib.nullcontext() if self.average is None else self.average.in_place()

    def zero_grad(self) -> None:
        """Drops the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def set_lr(self, multiplier: float) -> None:
        """Sets every group's learning rate to `multiplier` times its peak."""
        for optimizer, peaks in zip(self.optimizers, self._peaks, strict=True):
            # looked up each time: an optimizer's load_state_dict puts other groups in place
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * multiplier


def step_each(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """One after the other."""
    for optimizer in optimizers:
        optimizer.step()
