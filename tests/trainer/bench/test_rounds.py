"""Contenders by turns, with commands that only say that they have trained."""

import sys
from pathlib import Path

import pytest

from trainer.bench.contenders import Bed, Contender
from trainer.bench.processes import Failed
from trainer.bench.rounds import Differs, measure


def claims(loss: float) -> Contender:
    """Done when it was started, with that loss."""
    text = f"import sys, time; open(sys.argv[1] + '/rank-0.txt', 'w').write(f'{{time.monotonic_ns()}} {loss!r}')"
    return Contender([sys.executable, "-c", text, "FOLDER"])


FAILS = Contender([sys.executable, "-c", "raise SystemExit('error: no memory')"])


def test_all_are_run_and_compared_with_the_first(tmp_path: Path) -> None:
    told: list[str] = []
    contenders = {"plain": claims(1.5), "other": claims(1.5), "none": Contender([], lacks="not here"), "fails": FAILS}
    rows = measure(Bed(tmp_path), contenders, 2, told.append)
    assert rows["none"] == {"skipped": "not here"}
    assert rows["fails"] == {"skipped": "error: no memory"}
    assert rows["plain"]["ratio"] == 1.0
    assert rows["other"]["losses"] == [1.5]
    assert 0 < rows["other"]["low"] <= rows["other"]["median"] <= rows["other"]["high"] < 60
    assert told[-1] == "plain: round 2 of 2"


def test_a_loss_that_is_not_the_same_bits_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Differs, match="other has other losses"):
        measure(Bed(tmp_path), {"plain": claims(1.5), "other": claims(1.5000000000000002)}, 1, lambda _: None)


def test_nothing_is_compared_with_a_script_that_fails(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="no memory"):
        measure(Bed(tmp_path), {"plain": FAILS, "other": claims(1.0)}, 1, lambda _: None)
