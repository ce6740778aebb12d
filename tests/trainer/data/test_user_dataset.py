from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer.data.noisy import Noisy, Reseeded, Squares
from trainer.data import open_data
from trainer.data.draws import seed_generators
from trainer.data.loader import Loader
from trainer.data.user_dataset import DatasetSource
from trainer.errors import UserError
from trainer.schema import Config

HERE = "tests.trainer.data.noisy"


def opened(spec: str, validation: str = "", **options: Any) -> Any:
    config = Config()
    config.data.dataset = spec
    config.data.options = dict(options)
    config.data.validation = [validation] if validation else []
    return open_data(config, Path("unused"))


def draws(dataset: Noisy, *, workers: int, rank: int, start: int = 0, stop: int = 64) -> list[tuple[float, ...]]:
    """(index, draws...) of what one of two ranks sees between two cursors."""
    source = DatasetSource(dataset, "mine", 11)
    loader = Loader(source, global_batch=8, micro_batch=2, dp_rank=rank, dp_size=2, seed=11, workers=workers, epochs=2)
    seen = []
    for update in loader.updates(start):
        seen += [item for batch, real in update.micro_batches for item in batch[:real]]
        if update.cursor >= stop:
            break
    loader.close()
    return seen


@pytest.mark.parametrize("workers", [0, 2])
def test_draws_repeat_nowhere(workers: int) -> None:
    items = [item for rank in range(2) for item in draws(Reseeded(), workers=workers, rank=rank)]
    assert len(items) == 64
    for kind in range(1, 5):
        assert len({item[kind] for item in items}) == 64  # over ranks, workers and both epochs


def test_draws_do_not_depend_on_workers() -> None:
    assert draws(Reseeded(), workers=2, rank=1) == draws(Reseeded(), workers=0, rank=1)


@pytest.mark.parametrize("workers", [0, 2])
def test_draws_after_a_resume_are_those_of_the_run_never_stopped(workers: int) -> None:
    whole = draws(Reseeded(), workers=workers, rank=0)
    again = draws(Reseeded(), workers=workers, rank=0, stop=40) + draws(Reseeded(), workers=workers, rank=0, start=40)
    assert again == whole


def test_only_the_datasets_own_generator_goes_its_own_way_without_reseed() -> None:
    items = [item for rank in range(2) for item in draws(Noisy(), workers=2, rank=rank)]
    assert [len({item[kind] for item in items}) for kind in range(1, 4)] == [64, 64, 64]
    assert len({item[4] for item in items}) < 64  # as documented: `reseed` is for this


def test_training_draws_are_not_touched() -> None:
    import random

    source = DatasetSource(Noisy(), "mine", 0)
    seed_generators(1)
    expected = random.random(), float(np.random.rand()), float(torch.rand(()))
    seed_generators(1)
    source.fetch([1, 2, 3])
    assert (random.random(), float(np.random.rand()), float(torch.rand(()))) == expected


def test_class_function_and_object() -> None:
    assert len(opened(f"{HERE}:Noisy").train) == 32
    assert len(opened(f"{HERE}:Noisy", items=5).train) == 5
    assert len(opened(f"{HERE}:make", items=4).train) == 4
    assert len(opened(f"{HERE}:ready").train) == 6
    assert len(opened("tests/trainer/data/noisy.py:Noisy").train) == 32


def test_batches_of_default_collate_and_attributes() -> None:
    data = opened(f"{HERE}:Squares")
    assert data.train.fetch([3, 1]).tolist() == [9, 1]
    assert data.train.tokens_per_sample == 3
    assert data.vocabulary == 17 and data.tokenizer is None
    assert data.validation is not None and len(data.validation) == 4
    assert data.validation_bytes == 0 and data.zlib_bits_per_byte is None


def test_validation_by_name() -> None:
    assert opened(f"{HERE}:Noisy").validation is None
    assert len(opened(f"{HERE}:Noisy", validation=f"{HERE}:make").validation) == 3


def test_the_fingerprint_follows_name_options_and_size() -> None:
    same = {opened(f"{HERE}:Noisy", items=5).fingerprint for _ in range(2)}
    assert len(same) == 1
    assert opened(f"{HERE}:Noisy", items=6).fingerprint not in same


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        (f"{HERE}:Noisy", {"itmes": 3}, r"calling it with itmes raised TypeError: .*itmes"),
        (f"{HERE}:ready", {"items": 3}, "neither a class nor a function"),
        (f"{HERE}:Endless", {}, "not a map-style dataset: Endless"),
        (f"{HERE}:random", {}, "not a map-style dataset: module"),
        (f"{HERE}:make", {"items": 0}, "is empty"),
        (f"{HERE}:Nosy", {}, "has no 'Nosy'"),
    ],
)
def test_what_is_no_dataset_is_refused(spec: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        opened(spec, **options)
    assert error.value.status == 2 and error.value.fix


def test_a_dataset_and_text_are_too_much() -> None:
    config = Config()
    config.data.dataset, config.data.text = f"{HERE}:Noisy", ["a.txt"]
    with pytest.raises(UserError, match="both set"):
        open_data(config, Path("unused"))


def test_an_item_that_fails_is_named() -> None:
    source = DatasetSource(Squares(8, "raise"), "data.dataset = 'mine'", 0)
    with pytest.raises(
        UserError, match=r"data\.dataset = 'mine': item 5 raised ValueError: this sample is broken"
    ) as error:
        source.fetch([4, 5])
    assert isinstance(error.value.__cause__, ValueError)
    with pytest.raises(UserError, match=r"items 4, 5 cannot be made a batch: RuntimeError"):
        DatasetSource(Squares(8, "shape"), "mine", 0).fetch([4, 5])
