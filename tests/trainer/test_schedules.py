"""Pipeline schedules as arithmetic: what is chosen, what is refused before torch is imported."""

from typing import Any

import pytest

from trainer.config import resolve
from trainer.errors import UserError
from trainer.estimate.bubble import idle_share
from trainer.refuse import refuse_early
from trainer.schedules import SCHEDULES, allowed, even_cut, next_allowed, stages_of, usual_micro


def planned(world: int, **changes: str) -> Any:
    settings = [(name.replace("__", "."), value) for name, value in {"data__text": "x", **changes}.items()]
    return refuse_early(resolve("here", settings, {}, "").config, world)


@pytest.mark.parametrize(
    ("changes", "what", "fix"),
    [
        ({"parallel__pipeline": "3"}, "4 ranks is not a multiple of pipeline 3", "3 ranks"),
        ({"parallel__virtual": "2"}, "schedule 1f1b has 1 stage per rank", "parallel.schedule to interleaved"),
        (
            {"parallel__schedule": "zbv", "parallel__virtual": "3"},
            "schedule zbv has 2 stages per rank",
            "Remove parallel.virtual",
        ),
        ({"batch__size": "4", "batch__micro": "4"}, "but there are 1", "Set batch.micro to 2"),
        (
            {"batch__size": "6", "batch__micro": "2", "parallel__schedule": "dualpipev"},
            "at least 4",
            "Set batch.micro to 1",
        ),
        (
            {"batch__size": "10", "batch__micro": "2", "parallel__schedule": "interleaved"},
            "a multiple of 2 micro-batches, but there are 5",
            "Set batch.micro to 1",
        ),
        ({"batch__size": "1"}, "but there are 1", "Set batch.size to 2 or more"),
        # a batch that the micro-batches do not divide
        (
            {"batch__size": "8", "batch__micro": "3"},
            "batch.micro = 3 does not divide .* 8 samples",
            "Set batch.micro to 2",
        ),
        (
            {"model__layers": "3", "parallel__schedule": "zbv"},
            "3 blocks; 4 pipeline stages need at least 4",
            "parallel.pipeline to at most 3",
        ),
        (
            {"parallel__schedule": "zero_bubble", "parallel__strategy": "full"},
            "strategy full frees a block's weights .* schedule zero_bubble needs them",
            "Set parallel.strategy to gradients",
        ),
        ({"parallel__cut": "[3, 2]"}, r"parallel.cut = \[3, 2\] is not 2 numbers", r"Set parallel.cut to \[2, 2\]"),
        ({"parallel__cut": "4,0"}, r"parallel.cut = \[4, 0\]", "or remove it"),
    ],
)
def test_what_a_schedule_cannot_do_is_refused(changes: dict[str, str], what: str, fix: str) -> None:
    world = 4 if changes.get("parallel__pipeline") == "3" else 2
    with pytest.raises(UserError, match=what) as found:
        planned(world, **{"parallel__pipeline": "2", "model__layers": "4", **changes})
    assert fix.replace("\\", "") in found.value.fix
    assert found.value.status == 2


def test_micro_batches_are_four_to_a_rank_unless_set() -> None:
    assert planned(4, parallel__pipeline="4", batch__size="64").accumulation == 16
    assert planned(4, parallel__pipeline="2", batch__size="64").accumulation == 8
    assert planned(4, parallel__pipeline="4", batch__size="64", batch__micro="8").accumulation == 8
    # without a pipeline: all at once
    assert planned(4, batch__size="64").accumulation == 1
    # a share that has not so many: as many as there are, and the schedule can run
    assert usual_micro("1f1b", 4, 6) == 1
    assert usual_micro("interleaved", 4, 6) == 1


def test_the_left_over_of_an_epoch_is_filled_up_to_what_the_schedule_can_run() -> None:
    assert [next_allowed("1f1b", 4, count) for count in (1, 4, 5)] == [4, 4, 5]
    assert next_allowed("dualpipev", 2, 1) == 4
    assert [next_allowed("interleaved", 2, count) for count in (1, 5, 7)] == [1, 6, 8]
    assert all(allowed(name, 4, next_allowed(name, 4, count)) for name in SCHEDULES for count in range(1, 40))


def test_stages_lie_in_turn_and_those_of_a_v_there_and_back() -> None:
    assert [stages_of(rank, 2, "interleaved", 3) for rank in range(2)] == [[0, 2, 4], [1, 3, 5]]
    assert [stages_of(rank, 2, "zbv", 2) for rank in range(2)] == [[0, 3], [1, 2]]


def test_a_cut_makes_the_dearest_stage_as_cheap_as_can_be() -> None:
    assert even_cut([1.0] * 8, 4) == [2, 2, 2, 2]
    assert even_cut([1.0] * 5, 2) in ([2, 3], [3, 2])
    # a head as dear as three blocks
    assert even_cut([1.0] * 9, 3, last=3.0) == [4, 4, 1]
    assert even_cut([5.0, 1.0, 1.0, 1.0, 1.0], 2) == [1, 4]
    assert even_cut([1.0, 1.0], 2, first=100.0) == [1, 1]


def test_less_is_waited_with_more_micro_batches_and_more_stages_to_a_rank() -> None:
    assert idle_share("1f1b", 4, 8) == idle_share("gpipe", 4, 8) == (3 / 11, 3 / 8)
    assert idle_share("interleaved", 4, 8, 2)[1] == 3 / 16
    assert idle_share("zero_bubble", 4, 8, 1)[1] == 1 / 8
    assert idle_share("gpipe", 4, 1) == (0.75, 3.0)  # layer after layer: one of four works
