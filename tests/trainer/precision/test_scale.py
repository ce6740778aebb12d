"""fp16 on every layout: one decision, one scale; what is too small for it; gradients that add up in fp32."""

from typing import Any

import pytest

from tests.beds.ranks import on_ranks
from tools import amp
from trainer.errors import UserError
from trainer.precision import LossScale

LAYOUTS = [amp.Cut(2), amp.Cut(2, "full"), amp.Cut(2, "gradients")]
named = pytest.mark.parametrize("cut", LAYOUTS, ids=lambda cut: cut.strategy)


def same(cut: amp.Cut, function: Any, *arguments: Any) -> Any:
    """What all ranks found."""
    found = on_ranks(cut.ranks, function, cut, *arguments)
    assert all(each == found[0] for each in found)
    return found[0]


@named
def test_an_overflow_on_one_rank_or_shard_is_skipped_by_all(cut: amp.Cut) -> None:
    for gathered in ("", "fp16") if cut.strategy != "ddp" else ("",):
        found = same(cut, amp.overflow, gathered)
        assert found.finite_losses  # so it is the gradient that tells
        assert found.scales == [8.0, 4.0, 4.0]
        assert found.applied == [True, False, True]
        weights = [each[amp.FIRST] for each in found.weights]
        assert weights[1] == weights[0] == pytest.approx([0.9] * amp.ROWS)
        assert weights[2] == pytest.approx([0.8] * amp.ROWS)


@pytest.mark.parametrize("cut", [amp.Cut(2, "full"), *amp.STAGED], ids=lambda cut: cut.name)
def test_an_overflow_on_one_stage_is_skipped_by_all(cut: amp.Cut) -> None:
    alone = amp.overflow_on_a_stage(0, 1, amp.Cut(1))
    assert (alone.scales, alone.applied, alone.finite_losses) == ([8.0, 4.0, 4.0], [True, False, True], True)
    assert alone.weights[0] == alone.weights[1] != alone.weights[2]
    for found in on_ranks(cut.ranks, amp.overflow_on_a_stage, cut):
        assert (found.scales, found.applied) == (alone.scales, alone.applied)
        for mine, right in zip(found.weights, alone.weights, strict=True):
            assert mine
            assert all(mine[name] == right[name] for name in mine)


@named
def test_two_to_the_minus_24_survives_fp16_and_half_of_it_only_through_the_scale(cut: amp.Cut) -> None:
    gathered = "" if cut.strategy == "ddp" else "fp16"
    assert same(cut, amp.smallest, False, gathered) == [-(2.0**-23), -(2.0**-24), 0.0, 0.0]
    assert same(cut, amp.smallest, True, gathered) == [-(2.0**-23), -(2.0**-24), -(2.0**-25), -(2.0**-26)]


@pytest.mark.parametrize(
    ("cut", "weights", "gathered"),
    [
        (amp.Cut(1), "bf16", ""),
        (amp.Cut(2), "fp32", ""),
        (amp.Cut(2), "bf16", ""),
        (amp.Cut(2, "full"), "fp32", "bf16"),
        (amp.Cut(2, "full"), "bf16", ""),
    ],
)
def test_512_ones_are_512_in_bf16_too(cut: amp.Cut, weights: str, gathered: str) -> None:
    found = amp.ones(0, 1, cut, weights, gathered) if cut.ranks == 1 else same(cut, amp.ones, weights, gathered)
    assert found == pytest.approx(1.0, rel=1e-6)


def test_the_scale_starts_at_65536_doubles_after_2000_applied_updates_and_halves_on_overflow() -> None:
    scale = LossScale(65536.0, 2000, 1.0)
    trace = []
    for update in range(4001):
        if update == 2500:
            scale.overflowed()
        else:
            scale.applied()
        trace.append(scale.scale)
    assert trace[1998] == 65536.0
    assert trace[1999] == trace[2499] == 131072.0
    assert trace[2500] == 65536.0
    assert trace[4001 - 1] == 65536.0  # 1500 since the overflow


def test_the_scale_stays_a_number_that_backward_can_start_from() -> None:
    scale = LossScale(2.0**125, 1, 1.0)
    for _ in range(10):
        scale.applied()
    assert scale.scale == 2.0**126


def test_an_update_in_which_nothing_counts_leaves_the_scale() -> None:
    import torch

    model = amp.Column(1.0)
    scale = LossScale(8.0, 2000, 1.0)
    step = amp.make(model, amp.Cut(1), "fp16", scale=scale)

    def nothing(module: Any, batch: Any) -> Any:
        return module(batch[0]).sum() * 0.0, torch.tensor(0)

    step.cut.backward.module.loss = nothing  # type: ignore[attr-defined]  # of Accumulate
    outcome = step([amp.item(1.0, [1.0] * amp.ROWS)], 1.0, 1.0, False)
    assert not outcome.applied
    assert scale.scale == 8.0


def test_gradients_that_stay_undefined_end_the_run() -> None:
    model = amp.Column(1.0)
    step = amp.make(model, amp.Cut(1), "fp16", scale=LossScale(65536.0, 2000, 1.0))
    with pytest.raises(UserError, match=r"loss scale fell to 0\.5"):
        for _ in range(18):
            step([amp.item(float("nan"), [1.0] * amp.ROWS)], 1.0, 1.0, False)
    assert amp.whole(model)[amp.FIRST] == [1.0] * amp.ROWS
