"""What of the section `optim` can be seen to be wrong by looking at it alone. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.errors import UserError

if TYPE_CHECKING:
    from trainer.schema import Optim


def check_optim(optim: Optim) -> None:
    """Raises UserError (status 2) for values that no single setting can see to be wrong."""
    if len(optim.betas) != 2 or not all(0.0 <= beta < 1.0 for beta in optim.betas):
        raise UserError(
            f"optim.betas is {optim.betas}, not two numbers from 0 to less than 1",
            "Give two numbers, such as [0.9, 0.95].",
            2,
        )
    if not 0.0 <= optim.momentum < 1.0:
        raise UserError(f"optim.momentum = {optim.momentum:g} is not below 1", "Give a value from 0 to less than 1.", 2)
    if not 0.0 <= optim.final <= 1.0:
        raise UserError(
            f"optim.final {optim.final:g} is not a fraction of the peak learning rate", "Give a value from 0 to 1.", 2
        )
    if not 0.0 < optim.decay <= 1.0:
        raise UserError(
            f"optim.decay {optim.decay:g} is not a fraction of the updates", "Give a value above 0, at most 1.", 2
        )
    if optim.warmup < 0:
        raise UserError(f"optim.warmup {optim.warmup} is negative", "Give 0 or more updates.", 2)
    if not 0.0 <= optim.ema_decay < 1.0:
        raise UserError(f"optim.ema_decay {optim.ema_decay:g} is not below 1", "Give a value from 0 to less than 1.", 2)
    if optim.name == "schedule_free" and not optim.build:
        _check_schedule_free(optim)
    if optim.schedule not in ("cosine", "linear", "wsd", "constant"):
        raise UserError(f"optim.schedule {optim.schedule!r} is not known", "Use cosine, linear, wsd or constant.", 2)


def _check_schedule_free(optim: Optim) -> None:
    if optim.schedule != "constant":
        raise UserError(
            f"optim.name schedule_free replaces the schedule, but optim.schedule is {optim.schedule}",
            "Set optim.schedule to constant; optim.warmup may stay.",
            2,
        )
    if optim.average != "none":
        raise UserError(
            f"optim.name schedule_free keeps its own average, but optim.average is {optim.average}",
            "Set optim.average to none.",
            2,
        )
    if not optim.betas[0]:
        raise UserError(
            "optim.betas begins with 0, which schedule_free cannot use",
            "Set optim.betas to [0.9, 0.95].",
            2,
        )


def check_combination(optim: Optim, strategy: str, weights: str) -> None:
    """Raises UserError (status 2) for what `parallel.strategy` or `precision.weights` cannot have."""
    if optim.average == "ema" and weights == "bf16":
        raise UserError(
            "optim.average ema needs fp32 weights: bf16 has too few digits for the steps of an average",
            "Set precision.weights to fp32, or optim.average to none.",
            2,
        )
    if optim.build and strategy == "optimizer":
        raise UserError(
            f"parallel.strategy optimizer supports built-in optimizers only, but optim.build is {optim.build}",
            "Set parallel.strategy to gradients, which shards the state of any optimizer.",
            2,
        )
