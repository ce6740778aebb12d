from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.data.made import Numbers, text_config, write_documents
from trainer.data import open_data
from trainer.data.loader import Loader, Update, evaluation_batches
from trainer.errors import UserError


@pytest.fixture
def make() -> Iterator[Callable[..., Loader]]:
    made: list[Loader] = []

    def maker(samples: int, batch: int, **others: Any) -> Loader:
        made.append(Loader(Numbers(samples), global_batch=batch, **others))
        return made[-1]

    yield maker
    for loader in made:
        loader.close()


def real(update: Update) -> list[int]:
    """The samples of one rank that count."""
    return [number for batch, count in update.micro_batches for number in batch[:count]]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("last", ["keep", "drop"])
def test_two_resumes_equal_a_run_never_stopped(make: Callable[..., Loader], workers: int, last: str) -> None:
    def ranks(count: int) -> list[Loader]:
        return [
            make(41, 8, micro_batch=2, dp_rank=r, dp_size=2, seed=7, last=last, workers=workers * count, epochs=3)
            for r in range(2)
        ]

    whole = [list(loader.updates()) for loader in ranks(0)]
    updates = 15 if last == "drop" else 18
    assert [len(updates_of_rank) for updates_of_rank in whole] == [updates, updates]
    for rank in range(2):
        seen: list[Update] = []
        for stop in (7, 9, 99):
            cursor = seen[-1].cursor if seen else 0
            loader = ranks(1)[rank]
            for update in loader.updates(cursor):
                seen.append(update)
                if len(seen) == stop:
                    break
            loader.close()
        assert seen == whole[rank]
    per_epoch = updates // 3
    for epoch in range(3):
        inside = slice(epoch * per_epoch, (epoch + 1) * per_epoch)
        together = [
            number for updates_of_rank in whole for update in updates_of_rank[inside] for number in real(update)
        ]
        assert len(together) == len(set(together)) == (40 if last == "drop" else 41)
        assert {update.epoch for update in whole[0][inside]} == {epoch}
    assert [real(update) for update in whole[0][:per_epoch]] != [real(u) for u in whole[0][per_epoch : 2 * per_epoch]]


@pytest.mark.parametrize("micro", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ranks_share_each_update(make: Callable[..., Loader], ranks: int, micro: int) -> None:
    alone = list(make(29, 8, seed=1, epochs=2).updates())
    shares = [
        list(make(29, 8, seed=1, epochs=2, micro_batch=micro, dp_rank=rank, dp_size=ranks).updates())
        for rank in range(ranks)
    ]
    for number, whole in enumerate(alone):
        parts = [share[number] for share in shares]
        together = [i for part in parts for i in real(part)]
        assert sorted(together) == sorted(real(whole)) and len(set(together)) == len(together)
        assert {(p.samples, p.epoch, p.cursor) for p in parts} == {(whole.samples, whole.epoch, whole.cursor)}
        assert len({len(p.micro_batches) for p in parts}) == 1  # collectives match
        for part in parts:
            for batch, count in part.micro_batches:
                assert len(batch) == count or (count == 0 and batch == real(whole)[:1])
                assert len(batch) <= (micro or -(-8 // ranks))
    assert [update.samples for update in alone] == [8, 8, 8, 5] * 2


def test_the_last_accumulation_of_an_epoch_is_shorter(make: Callable[..., Loader]) -> None:
    for rank in range(2):
        updates = list(make(14, 6, micro_batch=1, dp_rank=rank, dp_size=2, epochs=1, shuffle=False).updates())
        assert [len(update.micro_batches) for update in updates] == [3, 3, 1]
        assert [number for update in updates for number in real(update)] == list(range(rank, 14, 2))


def test_a_rank_without_samples_gets_a_dummy(make: Callable[..., Loader]) -> None:
    updates = [list(make(9, 4, dp_rank=r, dp_size=4, epochs=1, shuffle=False).updates())[-1] for r in range(4)]
    assert [update.micro_batches for update in updates] == [[([8], 1)], [([8], 0)], [([8], 0)], [([8], 0)]]


def test_dropping_the_tail(make: Callable[..., Loader]) -> None:
    loader = make(41, 8, last="drop", epochs=40)
    assert (loader.samples_per_epoch, loader.updates_per_epoch, loader.dropped_per_epoch) == (40, 5, 1)
    updates = list(loader.updates())
    assert {update.samples for update in updates} == {8}
    left_out = set()
    for epoch in range(40):
        left_out |= set(range(41)) - {i for u in updates[epoch * 5 : epoch * 5 + 5] for i in real(u)}
    assert len(left_out) > 15  # not the same sample in every epoch
    keeping = make(41, 8)
    assert (keeping.samples_per_epoch, keeping.updates_per_epoch, keeping.dropped_per_epoch) == (41, 6, 0)


def test_no_end_and_no_shuffle(make: Callable[..., Loader]) -> None:
    stream = make(5, 2, shuffle=False).updates()
    assert [real(next(stream)) for _ in range(7)] == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4], [0, 1]]


def test_any_cursor_is_a_place_to_go_on_from(make: Callable[..., Loader]) -> None:
    order = [i for update in make(10_007, 64, seed=3, epochs=2).updates() for i in real(update)]
    for cursor in (0, 1, 63, 64, 9_999, 10_007, 15_000, 20_014):
        assert [i for update in make(10_007, 64, seed=3, epochs=2).updates(cursor) for i in real(update)] == order[
            cursor:
        ]


def test_a_batch_larger_than_the_data(make: Callable[..., Loader]) -> None:
    updates = list(make(3, 8, epochs=2, shuffle=False).updates())
    assert [(real(update), update.samples) for update in updates] == [([0, 1, 2], 3)] * 2
    with pytest.raises(UserError, match=r"3 samples, and batch\.last = \"drop\" drops them all: an update takes 8"):
        make(3, 8, last="drop")


def test_fewer_samples_than_ranks_are_refused(make: Callable[..., Loader]) -> None:
    with pytest.raises(UserError, match=r"batch\.size = 3 is less than the 4 ranks") as error:
        make(100, 3, dp_size=4)
    assert error.value.status == 2 and "4 or more" in error.value.fix


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("limit", [0, 1, 7, 10, 99])
def test_evaluation_sees_every_sample_once_on_any_number_of_ranks(ranks: int, limit: int) -> None:
    shares = [
        list(evaluation_batches(Numbers(10), micro_batch=2, dp_rank=rank, dp_size=ranks, limit=limit))
        for rank in range(ranks)
    ]
    assert len({len(share) for share in shares}) == 1
    assert all(len(batch) == max(1, count) for share in shares for batch, count in share)
    seen = [number for share in shares for batch, count in share for number in batch[:count]]
    assert sorted(seen) == list(range(min(limit or 10, 10)))


def test_sums_over_ranks_are_the_sums_of_one(tmp_path: Path) -> None:
    config = text_config(write_documents(tmp_path / "c", ["some words", "a few more words", "end"]), sequence=4)
    source = open_data(config, tmp_path / "run").train
    totals = set()
    for ranks in (1, 2, 3, 4):
        total = 0
        for rank in range(ranks):
            for batch, count in evaluation_batches(source, micro_batch=2, dp_rank=rank, dp_size=ranks):
                labels = batch["labels"].numpy()
                counted = (labels != -100) * (count > 0)
                total += int(np.sum(labels * counted * 3 + counted))
        totals.add(total)
    assert len(totals) == 1
