"""Evaluation does not depend on the number of ranks and leaves the training state alone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.beds.ranks import on_ranks
from tests.trainer.toy import ToyModel, sequences, token_loss
from trainer.evaluation import Evaluation
from trainer.mesh import Layout
from trainer.parallel import parallelize
from trainer.precision import Policy
from trainer.schema import Parallel

COUNTED = [6, 1, 5, 2, 6, 3, 1, 6, 4, 2]


class Ragged:
    """Ten sequences with different numbers of counted labels."""

    tokens_per_sample = 6

    def __init__(self) -> None:
        ids = sequences(10, 7, 59)
        self.tokens, self.labels = ids[:, :-1], ids[:, 1:].clone()
        for row, keep in enumerate(COUNTED):
            self.labels[row, keep:] = -100

    def __len__(self) -> int:
        return 10

    def fetch(self, indices: Any) -> dict[str, Tensor]:
        index = torch.as_tensor(list(indices))
        return {"tokens": self.tokens[index], "labels": self.labels[index]}


class OnlyValidation:
    validation = Ragged()
    validation_bytes = 0


def evaluate(rank: int, count: int) -> tuple[float, float, bool, bool]:
    """(loss, perplexity, random state untouched, still in training mode)."""
    model = ToyModel(dropout=0.5).double()
    model.train()
    data: Any = OnlyValidation()
    evaluation = Evaluation(
        parallelize(model, token_loss, Layout(replicate=count), Parallel(), torch.device("cpu")),
        data,
        Policy(torch.float64, torch.float64, None, None),
        torch.device("cpu"),
        rank,
        micro=2,
        limit=0,
        to_device=lambda batch: batch,
    )
    before = torch.get_rng_state()
    result = evaluation()
    return result["loss"], result["perplexity"], torch.equal(before, torch.get_rng_state()), model.training


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_loss_is_the_same_on_any_number_of_ranks(ranks: int) -> None:
    for loss, perplexity, untouched, training in on_ranks(ranks, evaluate) if ranks > 1 else [evaluate(0, 1)]:
        assert loss == pytest.approx(2.773326, abs=1e-6)
        assert perplexity == pytest.approx(16.0118, abs=1e-4)
        assert untouched
        assert training
