"""Ranks of different builds: which are named, and that all of them stop."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import (  # type: ignore[attr-defined]  # public, but not in its __all__
    FileStore,
    HashStore,
    Store,
)

from trainer.errors import UserError
from trainer.launch import agreement
from trainer.launch.agreement import Build, require_build_of_parent, require_same_build

OLD = Build("a" * 64, "1" * 64, "1.0", "host-a", "/old.pyz")
NEW = Build("b" * 64, "1" * 64, "1.0", "host-b", "/new.pyz")
RELOCKED = Build("c" * 64, "2" * 64, "1.0", "host-c", "/relocked.pyz")


def answers(stores: list[Store], builds: list[Build]) -> list[str]:
    """What each rank is told: "" or the error."""

    def rank(number: int) -> str:
        try:
            require_same_build(stores[number], number, len(builds), builds[number])
        except UserError as error:
            assert error.status == 3
            return error.what
        return ""

    with ThreadPoolExecutor(len(builds)) as pool:
        return list(pool.map(rank, range(len(builds))))


def told(*builds: Build) -> str:
    """What all ranks are told alike."""
    store = HashStore()
    store.set_timeout(timedelta(seconds=20))
    (answer,) = set(answers([store] * len(builds), list(builds)))
    return answer


def test_ranks_of_one_build_go_on() -> None:
    assert told(OLD, OLD._replace(host="host-b", path="/elsewhere.pyz"), OLD) == ""


def test_the_odd_one_is_named_wherever_it_stands() -> None:
    usual = "build aaaaaaaaaaaa, lock 111111111111"
    odd = "on host-b has build bbbbbbbbbbbb, lock 111111111111 (/new.pyz)"
    for number in range(3):
        builds = [OLD] * 3
        builds[number] = NEW
        expected = f"the ranks do not run the same build: rank {number} {odd}; the 2 others have {usual}"
        assert told(*builds) == expected


def test_of_two_ranks_the_second_is_the_odd_one() -> None:
    assert told(OLD, RELOCKED) == (
        "the ranks do not run the same build: rank 1 on host-c has build cccccccccccc, lock 222222222222 "
        "(/relocked.pyz); the other one has build aaaaaaaaaaaa, lock 111111111111"
    )


def test_many_odd_ones_are_counted() -> None:
    answer = told(*[OLD] * 7, *[NEW] * 5, RELOCKED)
    assert answer.count(" on host-") == agreement.MOST_NAMED
    assert "; 2 more differ; the 7 others have build aaaaaaaaaaaa" in answer


def test_a_checkout_is_no_built_file() -> None:
    plain = Build("", "", "1.0", "host-d", "/env")
    assert "rank 1 on host-d has no built file, version 1.0 (/env)" in told(OLD, plain)
    assert told(plain, plain._replace(path="/other")) == ""


def test_over_a_file(tmp_path: Path) -> None:
    stores: list[Store] = [FileStore(str(tmp_path / "meeting"), 2) for _ in range(2)]
    first, second = answers(stores, [OLD, NEW])
    assert first == second != ""


def test_a_rank_that_does_not_come_is_missed() -> None:
    store = HashStore()
    store.set_timeout(timedelta(seconds=0.2))
    with pytest.raises(RuntimeError):
        require_same_build(store, 0, 2, OLD)


def test_a_rank_of_nproc_has_the_build_of_its_parent() -> None:
    require_build_of_parent(1, OLD, f"{OLD.build} {OLD.lock}")
    require_build_of_parent(1, Build("", "", "1.0", "host-a", "/env"), " ")
    with pytest.raises(
        UserError, match=r"rank 1 has build bbbbbbbbbbbb, .* started it has build aaaaaaaaaaaa"
    ) as caught:
        require_build_of_parent(1, NEW, f"{OLD.build} {OLD.lock}")
    assert caught.value.status == 3
