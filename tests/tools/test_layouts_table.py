"""A part of the table of layouts: their numbers are those of one process."""

from functools import cache

import pytest

from tools import layouts
from tools.layouts import Case, Numbers, compared, on
from tools.prove_layouts import LIMITS

# two ranks each, and what needs four: hybrid shards, stages that are cut further
FOUR = ("full 2 x 2, 2 forwards", "pipeline 2 1f1b, tensor 2, 4 forwards", "full 2, tensor 2, sequence, 2 forwards")
SUBSET = [case for case in layouts.cases() if case.ranks == 2 or case.name in FOUR]


@cache
def one_process(dtype: str, optimizer: str, like: Case) -> Numbers:
    return layouts.one_process(dtype, optimizer, like)


# every second one in fp32 too
ROWS = [(case, "fp64", "adamw") for case in SUBSET] + [(case, "fp32", "sgd") for case in SUBSET[::2]]


@pytest.mark.parametrize(("case", "dtype", "optimizer"), ROWS, ids=lambda each: getattr(each, "name", each))
def test_numbers_are_those_of_one_process(case: Case, dtype: str, optimizer: str) -> None:
    like = Case(1, "ddp", 0, 4, virtual=case.model().layers, tied=case.tied)
    found = compared(one_process(dtype, optimizer, like), on(case, dtype, optimizer))
    assert max(found["loss"], found["norm"], found["weights"]) <= LIMITS[dtype], found


def test_the_subset_has_every_way_to_cut() -> None:
    assert len(SUBSET) >= 20
    assert {case.strategy for case in SUBSET} == {"ddp", "optimizer", "gradients", "full"}
    assert {case.schedule for case in SUBSET if case.pipeline > 1} == {name for name, _ in layouts.SCHEDULES}
    for name in ("context", "tensor"):
        assert any(getattr(case, name) > 1 for case in SUBSET)
    assert any(not case.tied for case in SUBSET) and any(case.recompute != "none" for case in SUBSET)


def test_one_process_that_adds_up_otherwise_is_not_the_same() -> None:
    case = SUBSET[0]
    spread = layouts.by_rounding(one_process("fp32", "sgd", case), "fp32", "sgd", case)
    assert 0 < spread["weights"] < 1e-6
