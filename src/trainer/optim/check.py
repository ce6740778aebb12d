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
            f"optim.betas is {optim.betas}: not two numbers from 0 to less than 1.",
            "Give two, such as [0.9, 0.95].",
            2,
        )
    if not 0.0 <= optim.momentum < 1.0:
        raise UserError(f"optim.momentum {optim.momentum:g} is not below 1.", "Give a value from 0 to less than 1.", 2)
    if not 0.0 <= optim.final <= 1.0:
        raise UserError(
            f"optim.final {optim.final:g} is not a share of the peak learning rate.", "Give a value from 0 to 1.", 2
        )
    if not 0.0 < optim.decay <= 1.0:
        raise UserError(
            f"optim.decay {optim.decay:g} is not a share of the updates.", "Give a value above 0, at most 1.", 2
        )
    if optim.warmup < 0:
        raise UserError(f"optim.warmup {optim.warmup} is negative.", "Give 0 or more updates.", 2)
    if not 0.0 <= optim.ema_decay < 1.0:
        raise UserError(
            f"optim.ema_decay {optim.ema_decay:g} is not below 1.", "Give a value from 0 to less than 1.", 2
        )
    if optim.name == "schedule_free" and not optim.build:
        _check_schedule_free(optim)
    if optim.schedule not in ("cosine", "linear", "wsd", "constant"):
        raise UserError(f"optim.schedule {optim.schedule!r} is not known.", "Take cosine, linear, wsd or constant.", 2)


def _check_schedule_free(optim: Optim) -> None:
    if optim.schedule != "constant":
        raise UserError(
            f"optim.name is schedule_free and optim.schedule {optim.schedule}: its average takes a schedule's place",
            "--optim.schedule constant; optim.warmup may stay",
            2,
        )
    if optim.average != "none":
        raise UserError(
            f"optim.name is schedule_free and optim.average {optim.average}: it keeps an average of its own",
            "--optim.average none",
            2,
        )
    if not optim.betas[0]:
        raise UserError(
            "optim.betas begins with 0, and schedule_free takes gradients nowhere near its average then",
            "--optim.betas [0.9, 0.95]",
            2,
        )


def check_combination(optim: Optim, strategy: str, weights: str) -> None:
    """Raises UserError (status 2) for what `parallel.strategy` or `precision.weights` cannot have."""
    if optim.average == "ema" and weights == "bf16":
        raise UserError(
            "optim.average is ema and precision.weights bf16, which has no digits for the steps of an average",
            "--precision.weights fp32, or --optim.average none",
            2,
        )
    if optim.build and strategy == "optimizer":
        raise UserError(
            f"optim.build is {optim.build}, and strategy optimizer spreads the built-in optimizers only",
            "--parallel.strategy gradients, which shards the state of any",
            2,
        )
