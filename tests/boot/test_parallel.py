"""Many small reads at once: all done, in order begun, errors told, nothing left running."""

import threading
import time

import pytest

from trainer_boot import parallel


def test_each_item_once() -> None:
    before = threading.active_count()
    assert parallel.each(lambda number: number * 2, range(500)) == {number: 2 * number for number in range(500)}
    assert parallel.each(abs, [-1]) == {0: 1}
    assert parallel.each(abs, []) == {}
    assert threading.active_count() == before


def test_waits_overlap() -> None:
    began = time.monotonic()
    parallel.each(lambda _: time.sleep(0.05), range(64))
    assert time.monotonic() - began < 64 * 0.05 / 2


def test_an_error_is_raised_and_ends_the_rest() -> None:
    done: list[int] = []

    def one(number: int) -> None:
        if number == 3:
            raise ValueError("the third")
        time.sleep(0.001)
        done.append(number)

    with pytest.raises(ValueError, match="the third"):
        parallel.each(one, range(100_000))
    assert len(done) < 100_000


def test_nothing_is_begun_after_the_end() -> None:
    assert parallel.each(abs, [1, 2, 3], time.monotonic() - 1) == {}
    found = parallel.each(lambda _: time.sleep(0.02), range(10_000), time.monotonic() + 0.1)
    assert 0 < len(found) < 10_000


def test_one_thread_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert parallel.each(abs, [-1, -2]) == {0: 1, 1: 2}
