"""Losses that go wrong on purpose."""

import math
import os

import torch
from torch import Tensor, nn

from tests.trainer.toy import token_loss

calls = 0


def reset() -> None:
    """Counts forwards anew."""
    global calls
    calls = 0


def infinite_in_third_update(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Infinite in one forward of the third update, with ten forwards an update."""
    global calls
    calls += 1
    total, count = token_loss(model, batch)
    if model.training and calls == 25:
        total = total * math.inf
    return total, count


def nan_in_second_update(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Not a number in the second forward."""
    global calls
    calls += 1
    total, count = token_loss(model, batch)
    return (total * torch.nan if calls == 2 else total), count


def infinite_on_rank_1_in_third_update(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Infinite in one forward of rank 1 of two, with five forwards an update each."""
    global calls
    calls += 1
    total, count = token_loss(model, batch)
    if model.training and calls == 13 and os.environ["RANK"] == "1":
        total = total * math.inf
    return total, count
