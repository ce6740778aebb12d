"""Blocks of each pipeline stage where `parallel.balance` asks for measured times: found once, by rank 0 for all."""

import copy
import sys
from typing import TYPE_CHECKING, Any

from trainer.data.loader import evaluation_batches
from trainer.launch import comm
from trainer.moving import moved
from trainer.schedules import check_cut, even_cut, stages_per_rank

if TYPE_CHECKING:
    import torch
    from torch import nn

    from trainer.backward import Loss
    from trainer.data.datasets import Datasets
    from trainer.precision import Policy
    from trainer.schema import Parallel


def balanced(
    parallel: "Parallel",
    model: "nn.Module",
    loss: "Loss",
    data: "Datasets",
    micro: int,
    policy: "Policy",
    device: "torch.device",
    *,
    first: bool,
    before: list[int] | None,
) -> "Parallel":
    """`parallel` with the `cut` that makes the dearest stage as cheap as can be, by the time of its blocks on `micro`
    samples. `model` is still whole; `first`: whether this is rank 0; `before`: the cut that a resumed run began with,
    which keeps it bit for bit. Collective."""
    from trainer.models.plan import Pieces, plan_of

    stages = parallel.pipeline * stages_per_rank(parallel.schedule, parallel.virtual)
    # what cannot be cut is refused by all ranks, not by the one that measures
    check_cut([], len(Pieces(model, plan_of(model)).blocks), stages)
    found = copy.copy(parallel)
    if before and len(before) == stages:
        found.cut = before
        return found
    text = ""
    if first:
        from trainer.parallel.pipeline_balance import measured_costs

        batch, _ = next(iter(evaluation_batches(data.train, micro_batch=micro, limit=micro)))
        costs = measured_costs(model, loss, moved(batch, device, policy.weights), device, policy.autocast(device.type))
        sizes = even_cut(costs, stages)
        text = " ".join(map(str, sizes))
        print(f"parallel.cut {sizes}: {_said(costs, sizes)}", file=sys.stderr)
    found.cut = [int(size) for size in comm.broadcast_text(text).split()]
    return found


def _said(costs: list[float], sizes: list[int]) -> str:
    """What the stages cost, in one line."""
    ends = [sum(sizes[: stage + 1]) for stage in range(len(sizes))]
    stages = [sum(costs[end - size : end]) * 1000 for end, size in zip(ends, sizes, strict=True)]
    return "measured here, forward and backward of each stage: " + ", ".join(f"{each:.3g}" for each in stages) + " ms"


def cut_of(meta: dict[str, Any] | None) -> list[int] | None:
    """The measured cut that a checkpoint's run began with; None: it had none."""
    found = (meta or {}).get("cut")
    return [int(size) for size in found] if found else None
