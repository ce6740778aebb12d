"""Averaged weights: what is evaluated, sampled from and saved, while training goes on with the weights themselves."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainer.checkpoint.spread import own_part
from trainer.optim.local import local, locals_of
from trainer.optim.schedule_free import ScheduleFreeAdamW


class Average:
    """Averages of `parameters`, all of which lie in `model`. Buffers are the model's own, as they are.

    `ema`: decay of an exponential average, taken here (0: none); it starts lower, (1 + n) / (10 + n) after n updates,
    or the first weights would last. `source`: gives this rank's part of a parameter's average from elsewhere.
    """

    def __init__(
        self, model: nn.Module, ema: float = 0.0, source: Callable[[list[nn.Parameter]], list[Tensor]] | None = None
    ) -> None:
        self.model = model
        self.ema = ema
        self.source = source
        self.updates = 0
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.kept = [] if source else [each.clone() for each in locals_of(self.parameters)]

    @torch.no_grad()
    def update(self) -> None:
        """Called after every applied update."""
        self.updates += 1
        if self.kept:
            decay = min(self.ema, (1 + self.updates) / (10 + self.updates))
            average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]  # torch's
            average(self.kept, locals_of(self.parameters), self.updates)

    def load(self, weights: Mapping[nn.Parameter, Tensor], updates: int) -> None:
        """Takes over what `in_place` showed after `updates` updates of an earlier run; not needed with a `source`."""
        self.updates = updates
        for kept, parameter in zip(self.kept, self.parameters, strict=bool(self.kept)):
            kept.copy_(local(weights[parameter]))

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averages inside, and bit for bit its own weights again afterwards. Collective where it is
        sharded. One more copy of the weights with a `source`, else one tensor more at a time."""
        reshard(self.model)
        with torch.no_grad():
            averages = self.source(self.parameters) if self.source else self.kept
            _exchange(locals_of(self.parameters), averages)
        try:
            yield
        finally:
            # what evaluation has gathered and not given up is of the averages
            reshard(self.model)
            with torch.no_grad():
                _exchange(locals_of(self.parameters), averages)


def _exchange(first: list[Tensor], second: list[Tensor]) -> None:
    for one, other in zip(first, second, strict=True):
        before = one.clone()
        one.copy_(other)
        other.copy_(before)


def reshard(model: nn.Module) -> None:
    """Gives up weights that FSDP2 has gathered."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None:
        for module in model.modules():
            if isinstance(module, fsdp.FSDPModule):
                module.reshard()


def schedule_free_source(
    optimizers: Sequence[Optimizer], spread: "torch.distributed.ProcessGroup | None"
) -> Callable[[list[nn.Parameter]], list[Tensor]]:
    """The averages that schedule-free optimizers hold; collective over the ranks that their state is spread over."""

    def averages(parameters: list[nn.Parameter]) -> list[Tensor]:
        owners = {
            parameter: optimizer
            for optimizer in map(own_part, optimizers)
            if isinstance(optimizer, ScheduleFreeAdamW)
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        found = [
            owners[parameter].average(parameter) if parameter in owners else torch.zeros_like(local(parameter))
            for parameter in parameters
        ]
        if spread is not None:
            for each in found:  # one rank has it, the others zeros
                torch.distributed.all_reduce(each, group=spread)
        return found

    return averages
