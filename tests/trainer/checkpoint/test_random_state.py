"""Random states of a rank: the draws after a resume are those that would have come."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from trainer.checkpoint.state import load_rank_state, save_rank_state


@pytest.fixture(autouse=True)
def unchanged_generators() -> Iterator[None]:
    python, numpy, own = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(own)


def draws() -> list[float]:
    return [
        random.random(),
        random.gauss(),
        float(np.random.rand()),
        float(np.random.standard_normal()),
        torch.rand(3).sum().item(),
        torch.randn(20).sum().item(),
    ]


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)
    # a pending second normal number is state, too
    random.gauss()
    np.random.standard_normal()


def test_every_generator_goes_on_where_it_was(tmp_path: Path) -> None:
    seed(3)
    save_rank_state(tmp_path, 0)
    expected = draws()
    seed(4)
    assert load_rank_state(tmp_path, 0)
    assert draws() == expected


def test_saving_draws_nothing(tmp_path: Path) -> None:
    seed(3)
    expected = draws()
    seed(3)
    save_rank_state(tmp_path, 0)
    assert draws() == expected


def test_each_rank_has_its_own(tmp_path: Path) -> None:
    expected = []
    for rank in range(3):
        seed(rank)
        save_rank_state(tmp_path, rank)
        expected.append(draws())
    for rank in (2, 0, 1):
        assert load_rank_state(tmp_path, rank)
        assert draws() == expected[rank]
    assert expected[0] != expected[1]


def test_a_rank_that_was_not_there_keeps_its_own_state(tmp_path: Path) -> None:
    save_rank_state(tmp_path, 0)
    seed(9)
    expected = draws()
    seed(9)
    assert not load_rank_state(tmp_path, 1)
    assert draws() == expected
