"""Stages that take equally long, where what blocks weigh says nothing of it."""

import contextlib
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.beds.runs import flags, losses, train_here, warm_trainer
from tests.trainer import toy
from trainer.checkpoint.store import Store
from trainer.errors import UserError
from trainer.models.plan import Plan
from trainer.parallel.pipeline_balance import measured_costs
from trainer.schedules import even_cut

CPU = torch.device("cpu")
NOTHING = contextlib.nullcontext()
SLOW = 0.04


class Sleeps(torch.autograd.Function):
    """As slow there as back."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        time.sleep(SLOW)
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        time.sleep(SLOW)
        return gradient


class Uneven(toy.ToyModel):
    """Four blocks of one size, of which the first is slow; with batch norms and dropout."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__(layers=4)
        self.dropout = dropout
        self.norm = nn.BatchNorm1d(toy.WIDTH)

    def plan(self) -> Plan:
        """The embedding before, the head after."""
        names = [f"blocks.{index}" for index in range(4)]
        return Plan(names, begin="embedding", middle="middle", end="head")

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.middle(self.embedding(tokens), range(4), tokens))
        return found

    def middle(self, hidden: Tensor, blocks: range, tokens: Tensor) -> Tensor:
        """Some blocks."""
        for index in blocks:
            if index == 0:
                hidden = Sleeps.apply(hidden)
            hidden = self.norm(self.blocks[index](hidden).transpose(1, 2)).transpose(1, 2)
            hidden = nn.functional.dropout(hidden, self.dropout, self.training)
        return hidden


def test_costs_are_times_and_leave_the_model_as_it_was() -> None:
    model = Uneven(dropout=0.1).double()
    batch, _ = toy.batches(toy.sequences(4, 6, 23), None, 4)[0]
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    costs = measured_costs(model, toy.token_loss, batch, CPU, NOTHING)
    assert len(costs) == 4
    assert costs[0] >= 2 * SLOW > max(costs[1:])
    assert even_cut(costs, 2) == [1, 3]
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)
    assert "forward" not in vars(model)


def test_what_a_pipeline_cannot_cut_is_refused() -> None:
    batch, _ = toy.batches(toy.sequences(4, 6, 23), None, 4)[0]
    with pytest.raises(UserError, match="what comes before and after its blocks is not given"):
        measured_costs(toy.ToyModel(layers=2), toy.token_loss, batch, CPU, NOTHING)


BUILT = {"model__build": "tests.trainer.parallel.test_pipeline_balance:Uneven", "batch__size": "2", "batch__micro": "1"}


def test_a_run_measures_once_and_goes_on_with_what_it_found(tmp_path: Path) -> None:
    (tmp_path / "run.toml").touch()
    words = ("train", "run.toml", "--nproc", "2", "--parallel.pipeline", "2", "--parallel.balance", "measured")
    said = []
    for steps in ("2", "3"):
        changes = flags(**BUILT, run__steps=steps, run__folder="run")
        done = warm_trainer(*words, *changes, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        said.append(done.stderr)
    assert "parallel.cut [1, 3]: measured here, forward and backward of each stage: " in said[0]
    assert "measured" not in said[1]
    store = Store(tmp_path / "run", 3)
    assert store.meta(store.list()[-1])["cut"] == [1, 3]
    alone = tmp_path / "alone"
    alone.mkdir()
    assert train_here(alone, **BUILT, run__steps="3") == 0
    assert losses(tmp_path / "run") == pytest.approx(losses(alone / "run"), rel=1e-11)
