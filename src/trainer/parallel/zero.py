"""Optimizer state cut over ranks that have equal weights and gradients (ZeRO-1: Rajbhandari et al., 2020)."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.distributed import ProcessGroup


def apply_zero(
    kind: Callable[..., torch.optim.Optimizer],
    groups: Sequence[dict[str, Any]],
    options: dict[str, Any],
    ranks: ProcessGroup,
) -> torch.optim.Optimizer:
    """The optimizer `kind(groups, **options)`, of which each of `ranks` keeps the state of some parameters, whole ones,
    updates them, and sends them to the others. A parameter goes to the rank with the fewest numbers so far.

    Groups hold all parameters on every rank; what is set there (a learning rate) counts for the next update.
    """
    from torch.distributed.optim import ZeroRedundancyOptimizer

    # without buckets, which would make the weights views of common memory: checkpoints and DDP want them as they are
    spread = ZeroRedundancyOptimizer(
        [dict(group) for group in groups],
        optimizer_class=cast("type[torch.optim.Optimizer]", kind),
        process_group=ranks,
        **options,
    )
    assert isinstance(spread, torch.optim.Optimizer)
    return spread
