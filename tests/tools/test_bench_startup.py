"""What the start-up benchmark keeps of earlier measurements."""

import pytest

from tools.bench_startup import added


def test_other_flows_and_places_are_kept() -> None:
    before = {"file": "a", "first_update": {"rounds": 5, "one": 1, "ddp": 2}, "memory": {"8 ranks": 3}}
    now = {"file": "a", "first_update": {"rounds": 7, "one": 4}, "first_update, cold": {"one": 5}}
    assert added(before, now) == {
        "file": "a",
        "first_update": {"rounds": 7, "one": 4, "ddp": 2},
        "first_update, cold": {"one": 5},
        "memory": {"8 ranks": 3},
    }


def test_measurements_of_two_builds_are_not_put_together() -> None:
    with pytest.raises(SystemExit, match="another build"):
        added({"file": "a"}, {"file": "b"})
