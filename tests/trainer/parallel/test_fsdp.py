"""Sharded and copied weights: the norm of one process, and rank 0's weights everywhere."""

import pytest
import torch
from torch import nn

from tests.beds.ranks import on_ranks
from tests.trainer.toy import ToyModel, batches, sequences, token_loss
from tools.layouts import CPU, whole
from trainer.mesh import Layout
from trainer.optim import build_optimizer
from trainer.parallel import Parallelized, parallelize
from trainer.precision import Policy
from trainer.schema import Optim, Parallel
from trainer.step import Step


def cut(model: nn.Module, count: int, strategy: str, shard: int) -> Parallelized:
    layout = Layout(replicate=count // shard, shard=shard)
    return parallelize(model, token_loss, layout, Parallel(strategy=strategy), CPU)


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([whole(each).reshape(-1) for each in model.parameters()])


def clipped(rank: int, count: int, strategy: str, shard: int) -> tuple[float, float]:
    """Norm before clipping to 0.05, and how far the weights went at a rate of 1."""
    model = ToyModel().double()
    before = flat(model)
    made = cut(model, count, strategy, shard)
    policy = Policy(torch.float64, torch.float64)
    step = Step(made, build_optimizer(model, Optim(name="sgd", lr=1.0), CPU, made.spread), policy, CPU, clip=0.05)
    mine = batches(sequences(4, 6, 11), None, 4 // count)[rank : rank + 1]
    outcome = step(mine, 20.0, 1.0, False)
    return outcome.grad_norm, float((flat(model) - before).norm())


@pytest.mark.parametrize(
    ("ranks", "strategy", "shard"),
    [(1, "ddp", 1), (2, "ddp", 1), (2, "optimizer", 1), (2, "full", 2), (4, "full", 2), (4, "gradients", 4)],
)
def test_the_norm_is_that_of_all_parts_once(ranks: int, strategy: str, shard: int) -> None:
    found = [clipped(0, 1, strategy, shard)] if ranks == 1 else on_ranks(ranks, clipped, strategy, shard)
    for norm, went in found:
        assert norm == pytest.approx(0.699792, abs=5e-7)
        assert went == pytest.approx(0.05, rel=1e-4)


def drawn(seed: int) -> nn.Module:
    """A model with a buffer, and weights that the seed gives."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # what a constructor draws counts too
    try:
        torch.manual_seed(seed)
        model = ToyModel()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
    finally:
        torch.set_default_dtype(before)
    model.register_buffer("drawn", torch.full((3,), float(seed)))
    return model


def first_weights(rank: int, count: int, strategy: str, shard: int) -> tuple[float, list[float]]:
    model = drawn(100 + rank)
    cut(model, count, strategy, shard)
    return float(flat(model).norm()), model.get_buffer("drawn").tolist()


@pytest.mark.parametrize(("ranks", "strategy", "shard"), [(2, "ddp", 1), (2, "full", 2), (4, "full", 2)])
def test_all_ranks_start_with_the_weights_and_buffers_of_the_first(ranks: int, strategy: str, shard: int) -> None:
    for norm, buffer in on_ranks(ranks, first_weights, strategy, shard):
        assert norm == pytest.approx(5.854973, abs=5e-7)
        assert buffer == [100.0] * 3
