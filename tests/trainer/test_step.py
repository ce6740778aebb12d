"""One update: exact gradients over micro-batches and ranks, one unscale, clip after it, no lone decisions."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.beds.ranks import on_ranks
from tests.trainer.toy import ToyModel, batches, flat, sequences, token_loss
from trainer.errors import UserError
from trainer.mesh import Layout
from trainer.optim import Optimizers, build_optimizer
from trainer.parallel import parallelize
from trainer.precision import LossScale, Policy
from trainer.schema import Optim, Parallel
from trainer.step import Outcome, Step

CPU = torch.device("cpu")


def make_step(
    model: nn.Module,
    dtype: torch.dtype,
    *,
    clip: float = 0.0,
    lr: float = 1.0,
    world_size: int = 1,
    scale: LossScale | None = None,
    loss: Any = token_loss,
    name: str = "sgd",
) -> Step:
    """A step over a plain or, for several ranks, a DDP-wrapped model."""
    model.to(dtype)
    cut = parallelize(model, loss, Layout(replicate=world_size), Parallel(bucket_mb=1), CPU)
    compute = torch.float16 if scale else dtype
    policy = Policy(compute, dtype, None, scale)
    optimizers = build_optimizer(model, Optim(name=name, lr=lr, weight_decay=0.0), CPU)
    return Step(cut, optimizers, policy, CPU, clip=clip)


def one_update(step: Step, micro_batches: list[tuple[dict[str, Tensor], int]], divisor: float = 7.0) -> Outcome:
    return step(micro_batches, divisor, 1.0, False)


def weighted_layout(rank: int, count: int, per_forward: int) -> tuple[float, float, int]:
    """Four sequences with 1, 7, 2 and 3 counted labels over `count` ranks."""
    everything = batches(sequences(4, 8, 3), [1, 7, 2, 3], per_forward)
    share = len(everything) // count
    step = make_step(ToyModel(), torch.float64, world_size=count)
    outcome = one_update(step, everything[rank * share : (rank + 1) * share])
    return outcome.loss, outcome.grad_norm, outcome.count


@pytest.mark.parametrize("per_forward", [1, 2, 4])
def test_loss_and_gradient_are_per_counted_token_in_one_process(per_forward: int) -> None:
    loss, norm, count = weighted_layout(0, 1, per_forward)
    assert loss == pytest.approx(2.702054, abs=1e-6)
    assert norm == pytest.approx(0.452299, abs=1e-6)
    assert count == 13


@pytest.mark.parametrize(("ranks", "per_forward"), [(2, 1), (2, 2), (4, 1)])
def test_loss_and_gradient_do_not_depend_on_the_ranks(ranks: int, per_forward: int) -> None:
    alone = weighted_layout(0, 1, 4)
    for found in on_ranks(ranks, weighted_layout, per_forward):
        assert found[0] == pytest.approx(alone[0], rel=1e-12)
        assert found[1] == pytest.approx(alone[1], rel=1e-12)
        assert found[2] == alone[2]


def epoch_with_short_tail(rank: int, count: int) -> tuple[int, list[float]]:
    """14 sequences, one a forward, accumulation 3 on 2 ranks: updates of 6, 6 and 2 sequences."""
    everything = batches(sequences(14, 5, 9), None, 1)
    step = make_step(ToyModel(), torch.float64, lr=0.5, world_size=count)
    updates = 0
    for start in range(0, 14, 6):
        one_update(step, everything[start : start + 6][rank::count], divisor=24.0)
        updates += 1
    model: Any = step.cut.module
    return updates, flat(model.module.model if count > 1 else model.model).tolist()


def test_a_shorter_last_update_is_weighted_by_its_own_count() -> None:
    updates, alone = epoch_with_short_tail(0, 1)
    assert updates == 3
    assert torch.tensor(alone, dtype=torch.float64).norm().item() == pytest.approx(4.206058, abs=1e-6)
    first, second = on_ranks(2, epoch_with_short_tail)
    assert first == second
    assert torch.allclose(torch.tensor(first[1]), torch.tensor(alone), rtol=0, atol=1e-12)


def test_scaled_gradients_are_unscaled_once_and_clipped_after() -> None:
    model = ToyModel()
    step = make_step(model, torch.float32, clip=0.1, scale=LossScale(1024.0, 2000, 1.0))
    before = flat(model).clone()
    outcome = one_update(step, batches(sequences(6, 7, 1), None, 2))
    assert outcome.grad_norm == pytest.approx(0.2773, rel=0.01)
    assert float((flat(model) - before).norm()) == pytest.approx(0.1, rel=0.01)


def test_the_same_in_float64_to_rounding() -> None:
    model = ToyModel()
    step = make_step(model, torch.float64, clip=0.1)
    before = flat(model).clone()
    outcome = one_update(step, batches(sequences(6, 7, 1), None, 2))
    assert outcome.grad_norm == pytest.approx(0.277308, abs=1e-6)
    assert float((flat(model) - before).norm()) == pytest.approx(0.099999639, abs=1e-9)


def test_a_forward_without_counted_labels_adds_nothing() -> None:
    model = ToyModel()
    step = make_step(model, torch.float64)
    outcome = one_update(step, batches(sequences(2, 6, 5), [0, 3], 1))
    assert outcome.applied
    assert outcome.count == 3
    assert math.isfinite(outcome.loss)


def test_dummy_batches_count_for_nothing() -> None:
    real = batches(sequences(2, 6, 5), None, 1)
    with_dummy = [*real, (real[0][0], 0)]
    first, second = ToyModel(), ToyModel()
    one_update(make_step(first, torch.float64), real)
    outcome = one_update(make_step(second, torch.float64), with_dummy)
    assert outcome.count == 10
    assert torch.equal(flat(first), flat(second))


def overflow_on_one_rank(rank: int, count: int) -> tuple[list[float], list[float], list[bool]]:
    """Rank 1's loss is infinite in the second of four updates."""
    weights, scales, applied = [], [], []
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    poison = {"on": False}

    def loss(module: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
        total = module(batch).sum()
        if poison["on"]:
            total = total * math.inf
        return total, torch.tensor(1)

    scale = LossScale(8.0, 2000, 1.0)
    step = make_step(model, torch.float32, lr=0.1, world_size=count, scale=scale, loss=loss)
    for update in range(4):
        poison["on"] = update == 1 and rank == count - 1
        outcome = step([(torch.ones(1, 1), 1)], float(count), 1.0, False)
        weights.append(float(model.weight.detach()))
        scales.append(scale.scale)
        applied.append(outcome.applied)
    return weights, scales, applied


def test_an_overflow_on_one_rank_is_skipped_by_all() -> None:
    first, second = on_ranks(2, overflow_on_one_rank)
    assert first == second
    assert first[0] == pytest.approx([0.9, 0.9, 0.8, 0.7])
    assert first[1] == [8.0, 4.0, 4.0, 4.0]
    assert first[2] == [True, False, True, True]


def test_loss_scale_doubles_after_growth_and_halves_on_overflow() -> None:
    scale = LossScale(65536.0, 3, 1.0)
    for _ in range(3):
        scale.applied()
    assert scale.scale == 131072.0
    scale.applied()
    scale.overflowed()
    assert (scale.scale, scale.good) == (65536.0, 0)


def test_loss_scale_survives_a_resume() -> None:
    scale, resumed = LossScale(1024.0, 3, 1.0), LossScale(1.0, 3, 1.0)
    scale.applied()
    scale.applied()
    resumed.load(scale.state())
    for one in (scale, resumed):
        one.applied()
    assert resumed.scale == scale.scale == 2048.0


def test_a_scale_that_only_falls_ends_the_run() -> None:
    scale = LossScale(2.0, 3, 1.0)
    scale.overflowed()
    with pytest.raises(UserError, match="loss scale fell"):
        scale.overflowed()


def test_small_gradients_survive_half_precision_through_the_scale() -> None:
    """A gradient of 2^-26 vanishes in fp16 and is kept by a scale of 65536."""
    kept = {}
    for scale in (None, LossScale(65536.0, 2000, 1.0)):
        model = nn.Linear(1, 1, bias=False)

        def loss(module: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
            return (module(batch).half() * 2.0**-13).float().sum() * 2.0**-13, torch.tensor(1)

        step = make_step(model, torch.float32, scale=scale, loss=loss)
        step.policy.compute = torch.float16
        step._autocast = step.policy.autocast("cpu")
        kept[scale is not None] = step([(torch.ones(1, 1), 1)], 1.0, 1.0, False).grad_norm
    assert kept[True] == pytest.approx(2.0**-26)
    assert kept[False] == 0.0


def test_weights_stay_in_float32_under_bf16_and_move() -> None:
    model = nn.Linear(8, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    ramp = torch.linspace(0.5, 1.5, 8).unsqueeze(0)

    def loss(module: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
        return module(batch).float().sum(), torch.tensor(1)

    policy = Policy(torch.bfloat16, torch.float32, None, None)
    optimizers: Optimizers = build_optimizer(model, Optim(lr=1e-3, betas=[0.9, 0.999]), CPU)
    step = Step(parallelize(model, loss, Layout(), Parallel(), CPU), optimizers, policy, CPU, clip=0.0)
    for _ in range(200):
        step([(ramp, 1)], 1.0, 1.0, False)
    assert model.weight.dtype == torch.float32
    assert model.weight.flatten().tolist() == pytest.approx([0.8] * 8, abs=1e-3)
    for optimizer in optimizers.optimizers:
        for state in optimizer.state.values():
            assert state["exp_avg"].dtype == torch.float32


def test_a_loss_that_is_not_finite_leaves_the_weights_alone() -> None:
    model = ToyModel()

    def loss(module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        total, count = token_loss(module, batch)
        return total * math.nan, count

    step = make_step(model, torch.float32, loss=loss)
    before = flat(model).clone()
    outcome = one_update(step, batches(sequences(2, 6, 5), None, 2))
    assert not outcome.applied
    assert torch.equal(before, flat(model))


def stop_from_one(rank: int, count: int) -> bool:
    step = make_step(ToyModel(), torch.float64, world_size=count)
    return step(batches(sequences(2, 6, 5), None, 2), 5.0, 1.0, rank == 1).stop


def test_a_stop_request_of_one_rank_is_seen_by_all() -> None:
    assert on_ranks(2, stop_from_one) == [True, True]
