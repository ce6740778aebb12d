"""A pipeline gives the gradients of one process: any schedule, any loss, ragged micro-batches, shared weights."""

import contextlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.beds.ranks import on_ranks
from tests.trainer import toy
from trainer.mesh import Layout
from trainer.models.plan import Plan
from trainer.optim import build_optimizer
from trainer.parallel import Parallelized, parallelize
from trainer.precision import LossScale, Policy
from trainer.schedules import SCHEDULES
from trainer.schema import Optim, Parallel
from trainer.step import Step

CPU = torch.device("cpu")
NOTHING = contextlib.nullcontext()


class Stacked(toy.ToyModel):
    """The toy with its modules in order."""

    def stages(self) -> list[nn.Module]:
        """All of them."""
        return [self.embedding, *self.blocks, self.head]


def made(rank: int, count: int, build: Callable[[], nn.Module], schedule: str, loss: Any = toy.token_loss) -> Any:
    """A model of double numbers in a pipeline over all ranks."""
    model = build().double()
    return model, parallelize(model, loss, Layout(pipeline=count), Parallel(pipeline=count, schedule=schedule), CPU)


def gradients(
    rank: int, count: int, build: Callable[[], nn.Module], schedule: str, batches: list[Any], weight: float, loss: Any
) -> tuple[list[tuple[float, int]], dict[str, Tensor], list[str]]:
    """Of one update: (sum, count) of each micro-batch, gradients, and those that another rank's norm counts."""
    model, cut = made(rank, count, build, schedule, loss)
    sums = cut.backward(batches, weight, NOTHING)
    own = {name: p.grad for name, p in model.named_parameters()}
    elsewhere = [name for name, p in model.named_parameters() if p in cut.counted_elsewhere]
    return [(float(total), int(number)) for total, number in sums], own, elsewhere


def alone(build: Callable[[], nn.Module], batches: list[Any], weight: float, loss: Any) -> dict[str, Tensor]:
    """The same in one process."""
    model = build().double()
    for batch, real in batches:
        (loss(model, batch)[0] * (weight if real else 0.0)).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_same(build: Callable[[], nn.Module], schedule: str, batches: list[Any], loss: Any, ranks: int = 2) -> Any:
    """Every rank's gradients are those of one process; what they gave."""
    found = on_ranks(ranks, gradients, build, schedule, batches, 0.01, loss)
    right = alone(build, batches, 0.01, loss)
    for _, own, _ in found:
        for name, value in own.items():
            assert torch.allclose(value, right[name], rtol=1e-12, atol=1e-15), name
    assert {name for _, own, _ in found for name in own} == set(right)
    return found


@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_gradients_are_those_of_one_process_with_unequal_token_counts(schedule: str) -> None:
    counted = [5, 1, 2, 4, 3, 5, 1, 1, 2, 5, 5, 4]
    batches = toy.batches(toy.sequences(12, 6, 23), counted, 1)
    found = on_ranks(2, gradients, Stacked, schedule, batches, 1 / sum(counted), toy.token_loss)
    sums = [each for own, _, _ in found for each in own]
    assert sum(total for total, _ in sums) / sum(counted) == pytest.approx(2.809185, abs=1e-6)
    assert sum(number for _, number in sums) == sum(counted)
    squares = [sum(float(value.square().sum()) for value in own.values()) for _, own, _ in found]
    assert math.sqrt(sum(squares)) == pytest.approx(0.284693, abs=1e-6)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero_bubble"])
def test_micro_batches_may_be_of_different_sizes(schedule: str) -> None:
    batches = toy.batches(toy.sequences(8, 6, 31), None, 3)
    assert [real for _, real in batches] == [3, 3, 2]
    found = on_ranks(2, gradients, Stacked, schedule, batches, 1 / 40, toy.token_loss)
    assert sum(total for own, _, _ in found for total, _ in own) / 40 == pytest.approx(2.908065, abs=1e-6)
    squares = [sum(float(value.square().sum()) for value in own.values()) for _, own, _ in found]
    assert math.sqrt(sum(squares)) == pytest.approx(0.381964, abs=1e-6)


def test_fewer_micro_batches_than_the_schedule_needs_are_filled_up_with_what_counts_nothing() -> None:
    batches = toy.batches(toy.sequences(2, 6, 31), None, 1)
    found = assert_same(Stacked, "dualpipev", batches, toy.token_loss)
    assert sum(len(sums) for sums, _, _ in found) == 2


def one_after_another(rank: int, count: int, sizes: list[int]) -> list[float]:
    """Norms of updates with so many micro-batches each."""
    model, cut = made(rank, count, Stacked, "1f1b")
    norms = []
    for size in sizes:
        cut.backward(toy.batches(toy.sequences(size, 6, 31), None, 1), 1.0, NOTHING)
        norms.append(sum(float(p.grad.square().sum()) for p in model.parameters()))
        model.zero_grad()
    return norms


def test_updates_may_have_different_numbers_of_micro_batches() -> None:
    for norms in on_ranks(2, one_after_another, [4, 3, 4, 2]):
        assert norms[2] == norms[0] and len(set(norms)) == 3


class Tied(toy.ToyModel):
    """The head is the embedding's transpose, a scale lies beside the modules, and a norm is used by all blocks."""

    def __init__(self) -> None:
        super().__init__(layers=4)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.tensor([1.5]))
        self.norm = nn.LayerNorm(toy.WIDTH)

    def plan(self) -> Plan:
        """The embedding first, the head last; nobody says who needs the scale and the norm."""
        names = [f"blocks.{index}" for index in range(4)]
        return Plan(names, begin="embedding", middle="middle", end="finish", last=("head",))

    def middle(self, hidden: Tensor, blocks: range, tokens: Tensor) -> Tensor:
        """Some blocks."""
        for index in blocks:
            hidden = self.blocks[index](self.norm(hidden) * self.scale)
        return hidden

    def finish(self, hidden: Tensor) -> Tensor:
        """Logits."""
        return self.head(hidden * self.scale)  # type: ignore[no-any-return]

    def forward(self, tokens: Tensor) -> Tensor:
        return self.finish(self.middle(self.embedding(tokens), range(4), tokens))


@pytest.mark.parametrize("schedule", ["1f1b", "zbv"])
def test_weights_that_several_stages_use_have_the_sum_of_all_uses(schedule: str) -> None:
    batches = toy.batches(toy.sequences(4, 6, 3), None, 1)
    found = assert_same(Tied, schedule, batches, toy.token_loss)
    own = [own for _, own, _ in found]
    shared = {"scale", "norm.weight", "norm.bias"} | ({"embedding.weight"} if schedule == "1f1b" else set())
    assert {name for name in own[0] if name in own[1]} == shared
    assert all(torch.equal(own[0][name], own[1][name]) for name in shared)
    # the norm counts them once
    assert found[0][2] == [] and set(found[1][2]) == shared


class WithLoss(nn.Sequential):
    """Batch norm, dropout and a loss of its own, which looks at the labels before it calls the model."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        super().__init__(
            nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 5), nn.Linear(5, 3)
        )

    def loss(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Of (inputs, labels)."""
        inputs, labels = batch
        counted = labels >= 0
        return functional.cross_entropy(self(inputs), labels, reduction="sum"), counted.sum()


def own_loss(model: Any, batch: Any) -> tuple[Tensor, Tensor]:
    total: tuple[Tensor, Tensor] = model.loss(batch)
    return total


def counts_batches(rank: int, count: int) -> tuple[int, bool, float, int]:
    model, cut = made(rank, count, WithLoss, "1f1b", own_loss)
    model[3].p = 0.0
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(rank)
    batches = [((torch.randn(3, 4, generator=generator).double(), torch.tensor([0, 1, 2])), 3) for _ in range(8)]
    torch.distributed.broadcast(batches[0][0][0], 0)
    cut.backward(batches, 1.0, NOTHING)
    same = torch.equal(before, torch.get_rng_state())
    seen = int(model[1].num_batches_tracked) if rank == 0 else -1
    cut.module.eval()
    total, number = cut.evaluate(batches[0][0])
    return seen, same, float(total.detach()), int(number)


def test_no_forward_is_hidden_and_a_sequential_model_with_its_own_loss_needs_no_plan() -> None:
    first, last = on_ranks(2, counts_batches)
    assert first[0] == 8
    assert first[1] and last[1]
    assert first[2:] == (0.0, 0) and last[2] > 0 and last[3] == 3


def twice(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    first, _ = toy.token_loss(model, batch)
    return toy.token_loss(model, batch)[0] + first, torch.tensor(1)


def reaches_inside(model: Any, batch: Any) -> tuple[Tensor, Tensor]:
    return model.head(model.blocks[0](model.embedding(batch["tokens"]))).sum(), torch.tensor(1)


def never(model: Any, batch: Any) -> tuple[Tensor, Tensor]:
    return torch.zeros(()), torch.tensor(1)


def told(rank: int, count: int, loss: Any) -> str:
    """What is wrong with it, on the rank that sees it first."""
    _, cut = made(rank, count, Stacked, "gpipe", loss)
    try:
        cut.backward.calls.loss_of(torch.zeros(1, 5, 16), {"tokens": torch.zeros(1, 5).long(), "labels": None})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    try:
        cut.backward.calls.of({"tokens": torch.zeros(1, 5).long()})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_a_loss_that_no_pipeline_can_serve_is_told_so() -> None:
    assert "calls the model more than once" in on_ranks(2, told, _twice_without_labels)[1]
    assert "belongs to another stage" in on_ranks(2, told, reaches_inside)[0]
    assert "did not call the model" in on_ranks(2, told, never)[0]


def _twice_without_labels(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    return model(batch["tokens"]).sum() + model(batch["tokens"]).sum(), torch.tensor(1)


def plain_list(rank: int, count: int) -> str:
    try:
        made(rank, count, toy.ToyModel, "gpipe")
    except Exception as error:
        return f"{error} {getattr(error, 'fix', '')}"
    return ""


def test_a_model_that_says_nothing_is_asked_to() -> None:
    for said in on_ranks(2, plain_list):
        assert "a pipeline cannot split ToyModel" in said and "stages()" in said


def overflow(rank: int, count: int, schedule: str) -> Any:
    """Three updates of half precision with a scale; in the second the first stage alone has an infinite gradient."""
    model, cut = made(rank, count, Stacked, schedule)
    policy = Policy(torch.float64, torch.float64, None, LossScale(8.0, 2000, 1.0))
    step = Step(cut, build_optimizer(model, Optim(name="sgd", lr=0.1, clip=1.0), CPU), policy, CPU, clip=1.0)
    batches = toy.batches(toy.sequences(4, 6, 3), None, 1)
    outcomes = []
    for update in range(3):
        hooks = [
            p.register_hook(lambda gradient: gradient * math.inf)
            for name, p in model.named_parameters()
            if update == 1 and name.startswith("embedding")
        ]
        before = [p.detach().clone() for p in model.parameters()]
        done = step(batches, 20.0, 1.0, False)
        for hook in hooks:
            hook.remove()
        same = all(map(torch.equal, before, model.parameters()))
        assert policy.scale is not None
        outcomes.append((done.applied, same, policy.scale.scale))
    return outcomes


@pytest.mark.parametrize("schedule", ["1f1b", "zbv"])
def test_an_overflow_on_one_stage_skips_the_update_on_all(schedule: str) -> None:
    for found in on_ranks(2, overflow, schedule):
        assert found == [(True, False, 8.0), (False, True, 4.0), (True, False, 4.0)]


class Dropping(Stacked):
    """Half of each block's branch is dropped; blocks are computed again in backward, or kept."""

    def __init__(self, again: bool) -> None:
        super().__init__(layers=4, dropout=0.5)
        if again:
            for block in self.blocks:
                block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def dropped(rank: int, count: int, schedule: str, again: bool) -> Any:
    model, cut = made(rank, count, partial(Dropping, again), schedule)
    torch.manual_seed(1234 + rank)
    sums = cut.backward(toy.batches(toy.sequences(4, 7, 13), None, 1), 1.0, NOTHING)
    return [float(total) for total, _ in sums], [p.grad for p in model.parameters()], torch.rand(1)


@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_recomputed_blocks_of_a_stage_drop_what_they_dropped(schedule: str) -> None:
    for kept, again in zip(on_ranks(2, dropped, schedule, False), on_ranks(2, dropped, schedule, True), strict=True):
        assert kept[0] == again[0] and torch.equal(kept[2], again[2])
        assert all(map(torch.equal, kept[1], again[1]))


def generated(rank: int, count: int, schedule: str) -> Tensor:
    """Logits of five tokens with a cache, two calls."""
    from trainer.models import MODELS
    from trainer.schema import Model

    torch.manual_seed(5)
    model: Any = MODELS["gpt"](Model(kind="gpt", layers=4, width=16, heads=2, bigram=50), 31).double().eval()
    if count > 1:
        parallelize(model, toy.token_loss, Layout(pipeline=count), Parallel(pipeline=count, schedule=schedule), CPU)
    cache = model.new_cache(1, 5)
    with torch.no_grad():
        tokens = torch.tensor([[3, 1, 4, 1, 5]])
        parts = [
            model(tokens[:, :3], cache=cache),
            model(tokens[:, 3:4], cache=cache),
            model(tokens[:, 4:], cache=cache),
        ]
    return torch.cat(parts, 1)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zbv"])
def test_a_model_in_stages_is_called_as_if_it_were_whole(schedule: str) -> None:
    right = generated(0, 1, schedule)
    for logits in on_ranks(2, generated, schedule):
        assert torch.allclose(logits, right, rtol=1e-12, atol=1e-14)


def test_micro_batches_in_flight_are_those_of_theory() -> None:
    from tools.pipeline_trace import Times, in_flight, traced

    expected = {"gpipe": (1, [8, 8, 8, 8]), "1f1b": (1, [4, 3, 2, 1]), "interleaved": (2, [11, 9, 7, 5])}
    for schedule, (virtual, right) in expected.items():
        found = on_ranks(4, traced, schedule, virtual, 8, Times(0.0, 0.0, 0.0))
        assert [in_flight(events) for events in found] == right


def test_parallelized_says_which_rank_counts() -> None:
    assert on_ranks(2, _counts) == [(False, 2), (True, 2)]


def _counts(rank: int, count: int) -> tuple[bool, int]:
    cut: Parallelized = made(rank, count, Stacked, "1f1b")[1]
    assert cut.stages is not None
    return cut.counts, cut.stages.size()
