"""What each block of a model costs, by the clock: counted work knows nothing of attention, convolutions or caches."""

import contextlib
import time
from typing import Any

import torch
from torch import Tensor, nn

from trainer.backward import Loss
from trainer.errors import UserError
from trainer.models.plan import Pieces, plan_of
from trainer.parallel.batch_norm import batch_norms, idle
from trainer.parallel.pipeline_calls import Call, Calls

ROUNDS = 3


def measured_costs(
    model: nn.Module, loss: Loss, batch: Any, device: torch.device, autocast: contextlib.AbstractContextManager[Any]
) -> list[float]:
    """Seconds of each block's forward and backward on `batch`, the least of three after one to warm up; the first with
    what comes before the blocks, the last with what comes after and the loss.

    `model` is whole, has no gradients, and is left as it was: weights, running statistics, random states. `autocast`:
    can be entered again and again. UserError (status 2) for a model that a pipeline cannot cut.
    """
    pieces = Pieces(model, plan_of(model))
    own = vars(model).get("forward")
    cuda = [device] if device.type == "cuda" else []
    try:
        calls = Calls(model, loss, _nobody)
        with torch.random.fork_rng(devices=cuda), idle(batch_norms(model)):
            call = calls.of(batch)
            rounds = [_one_round(pieces, calls, call, batch, device, autocast) for _ in range(1 + ROUNDS)]
    finally:
        del model.forward
        if own is not None:
            model.forward = own
    return [min(of_block) for of_block in zip(*rounds[1:], strict=True)]


def _one_round(
    pieces: Pieces,
    calls: Calls,
    call: Call,
    batch: Any,
    device: torch.device,
    autocast: contextlib.AbstractContextManager[Any],
) -> list[float]:
    found = []
    hidden: Tensor | None = None
    count = len(pieces.blocks)
    for index in range(count):
        last = index == count - 1
        began = _now(device)
        with autocast:
            made = pieces.run(hidden, range(index, index + 1), call.args, call.kwargs, last=last)
            if last:
                made, _ = calls.loss_of(made, batch)
        if not isinstance(made, Tensor):
            raise UserError(
                f"a block of the model returns {type(made).__name__}, but stages exchange one tensor",
                "Split the model between blocks that take and return one tensor.",
                2,
            )
        if made.requires_grad:
            torch.autograd.backward([made], None if last else [torch.ones_like(made)])
        found.append(_now(device) - began)
        pieces.model.zero_grad()  # never those of the whole model at once
        hidden = made.detach().requires_grad_(made.is_floating_point())
    return found


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _nobody(call: Call) -> Any:
    raise UserError(
        "the blocks of the model cannot be timed, because the loss does not call the model as a whole",
        "Set parallel.balance to counted, or parallel.cut to the blocks of each stage.",
        2,
    )
