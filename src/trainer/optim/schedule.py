"""The learning rate of every update. No torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainer.errors import UserError
from trainer.optim.check import check_optim

if TYPE_CHECKING:
    from trainer.schema import Optim


def learning_rate(optim: Optim, applied_updates: int, total_updates: int) -> float:
    """Share of the peak learning rate, in [0, 1], for the update that follows `applied_updates` applied ones.

    Warm-up of n updates takes the shares 1/n, 2/n, ..., 1. After it the rate falls over the rest of `total_updates`
    towards `final` (cosine: Loshchilov and Hutter, 2017), which the update after the last would take; wsd stays at the
    peak and falls linearly in the last share `decay` (Hu et al., "MiniCPM", 2024). Skipped updates do not count.
    Raises UserError for values out of range.
    """
    check_optim(optim)
    if applied_updates < 0 or total_updates < 1:
        raise UserError(
            f"update {applied_updates} of {total_updates} has no learning rate", "Train at least one update.", 2
        )
    rising = min(1.0, (applied_updates + 1) / optim.warmup) if optim.warmup else 1.0
    if optim.schedule == "constant":
        return rising
    if optim.schedule == "wsd":
        falling = max(1, round(optim.decay * total_updates))
        passed = applied_updates - (total_updates - falling)
    else:
        falling = max(1, total_updates - optim.warmup)
        passed = applied_updates - optim.warmup
    share = min(1.0, max(0.0, passed / falling))
    left = 0.5 * (1.0 + math.cos(math.pi * share)) if optim.schedule == "cosine" else 1.0 - share
    return min(rising, optim.final + (1.0 - optim.final) * left)
