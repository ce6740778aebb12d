from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from tests.trainer.data.noisy import Squares
from trainer.data.loader import Loader, evaluation_batches
from trainer.data.pinning import pinned
from trainer.data.user_dataset import DatasetSource


class Pair(NamedTuple):
    first: Tensor
    second: str


@pytest.fixture(autouse=True)
def plus_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page-locked memory takes a CUDA device; a stand-in shows what would be pinned."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 100)


def test_tensors_are_pinned_wherever_they_are() -> None:
    one = torch.tensor(1)
    batch = pinned({"a": one, "b": [one, "text"], "c": (one, 5), "d": Pair(one, "x"), "e": None})
    assert batch == {"a": 101, "b": [101, "text"], "c": (101, 5), "d": Pair(torch.tensor(101), "x"), "e": None}
    assert isinstance(batch["d"], Pair)


def test_the_loader_pins_when_told() -> None:
    source = DatasetSource(Squares(4), "mine", 0)
    for pin, extra in ((False, 0), (True, 100)):
        (update,) = Loader(source, global_batch=4, shuffle=False, epochs=1, pin=pin).updates()
        assert update.micro_batches[0][0].tolist() == [extra, extra + 1, extra + 4, extra + 9]
        ((batch, _),) = evaluation_batches(source, micro_batch=4, pin=pin)
        assert batch.tolist() == [extra, extra + 1, extra + 4, extra + 9]
