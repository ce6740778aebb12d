"""Generations."""

import os
from pathlib import Path

import pytest

from tests.boot.environment.test_store import stored
from trainer_boot.environment.profile import Profile
from trainer_boot.environment.refused import Refused
from trainer_boot.environment.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(str(tmp_path))
    made.make()
    for name in ("first", "second", "third"):
        stored(made, name)
    return made


def numbers(profile: Profile) -> list[tuple[int, str]]:
    return [(each.number, each.environment) for each in profile.generations()]


def test_forwards_back_and_on(store: Store) -> None:
    profile = Profile(store)
    assert profile.current() is None
    with pytest.raises(Refused, match="no current generation"):
        profile.rollback()
    assert [profile.add(name).number for name in ("first", "second", "second", "third")] == [1, 2, 2, 3]
    assert profile.rollback().number == 2
    assert profile.rollback().number == 1
    with pytest.raises(Refused, match="generation 1 is the oldest"):
        profile.rollback()
    assert profile.switch(3).environment == "third"
    assert os.path.realpath(profile.link) == store.path_of("third")
    assert profile.add("first").number == 4
    assert numbers(profile) == [(1, "first"), (2, "second"), (3, "third"), (4, "first")]


def test_back_over_one_that_was_dropped(store: Store) -> None:
    profile = Profile(store)
    for name in ("first", "second", "third"):
        profile.add(name)
    profile.drop(profile.generations()[1])
    assert profile.rollback().number == 1


def test_never_to_one_that_is_gone(store: Store) -> None:
    profile = Profile(store)
    profile.add("first")
    profile.add("second")
    (Path(store.path_of("first")) / "trainer-environment.json").unlink()
    with pytest.raises(Refused, match="first, is gone"):
        profile.rollback()
    current = profile.current()
    assert current is not None
    assert current.number == 2
    with pytest.raises(Refused, match="no generation 7") as caught:
        profile.switch(7)
    assert caught.value.status == 2


def test_strange_entries_are_passed_by(store: Store) -> None:
    profile = Profile(store)
    profile.add("first")
    for name in ("default-x", "default-", "other-3"):
        Path(f"{store.profiles}/{name}").symlink_to("nowhere")
    Path(store.profiles, "default-9").touch()
    assert numbers(profile) == [(1, "first")]


def test_two_at_once_take_two_numbers(store: Store) -> None:
    first, second = Profile(store), Profile(store)
    Path(f"{store.profiles}/default-1").symlink_to("../environments/third")
    assert first.add("first").number == 2
    assert second.add("second").number == 3
