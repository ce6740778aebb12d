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
    if optim.schedule not in ("cosine", "linear", "wsd", "constant"):
        raise UserError(f"optim.schedule {optim.schedule!r} is not known.", "Take cosine, linear, wsd or constant.", 2)


def check_combination(optim: Optim, strategy: str) -> None:
    """Raises UserError (status 2) for an optimizer that `parallel.strategy` cannot have."""
    if optim.build and strategy == "optimizer":
        raise UserError(
            f"optim.build is {optim.build}, and strategy optimizer spreads the built-in optimizers only",
            "--parallel.strategy gradients, which shards the state of any",
            2,
        )
