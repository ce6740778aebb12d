"""What is made again in backward is what was there before, whatever random numbers it took."""

import copy
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tests.beds.ranks import on_ranks
from tests.trainer.toy import WIDTH, ToyModel, batches, sequences, token_loss
from tools import layouts
from trainer.errors import UserError
from trainer.mesh import Layout
from trainer.parallel import parallelize
from trainer.parallel.recompute import apply_recompute
from trainer.schema import Memory, Parallel

CPU = torch.device("cpu")
MODES = ("full", "every", "selective")


class Found(NamedTuple):
    """Of one backward of the toy, dropout 0.5: loss, the next random number, gradients."""

    loss: float
    next: float
    gradients: list[Tensor]

    @property
    def norm(self) -> float:
        """Of all gradients."""
        return float(torch.cat([each.flatten() for each in self.gradients]).double().norm())

    def assert_same(self, other: "Found") -> None:
        """Bit for bit."""
        assert (self.loss, self.next) == (other.loss, other.next)
        assert all(torch.equal(a, b) for a, b in zip(self.gradients, other.gradients, strict=True))


def backward(rank: int, count: int, mode: str, dtype: torch.dtype, autocast: bool = False) -> Found:
    """On one rank, or on several that shard the weights and see the same samples."""
    model = ToyModel(dropout=0.5).to(dtype)
    parallel = Parallel(strategy="full" if count > 1 else "ddp")
    cut = parallelize(model, token_loss, Layout(shard=count), parallel, CPU, memory=Memory(recompute=mode))
    torch.manual_seed(1234)
    ((batch, real),) = batches(sequences(4, 7, 13), None, 4)
    context = torch.autocast("cpu", torch.bfloat16, enabled=autocast)
    ((total, counted),) = cut.backward([(batch, real)], 1 / float(batch["labels"].numel()), context)
    drawn = float(torch.rand((), dtype=torch.float64))
    gradients = [layouts.whole(each.grad) for each in model.parameters()]
    return Found(float(total) / float(counted), drawn, gradients)


@pytest.mark.parametrize("mode", MODES)
def test_dropout_is_the_same_the_second_time(mode: str) -> None:
    kept = backward(0, 1, "none", torch.float64)
    found = backward(0, 1, mode, torch.float64)
    assert (found.loss, found.norm, found.next) == pytest.approx((2.770828, 0.578152, 0.156504), abs=5e-7)
    found.assert_same(kept)
    for sharded in on_ranks(2, backward, mode, torch.float64):
        found.assert_same(sharded)


@pytest.mark.parametrize("mode", MODES)
def test_autocast_is_the_same_the_second_time(mode: str) -> None:
    lowered = backward(0, 1, "none", torch.float32, True)
    assert lowered.loss != backward(0, 1, "none", torch.float32).loss
    backward(0, 1, mode, torch.float32, True).assert_same(lowered)


def test_statistics_are_written_once_and_copies_are_on_their_own() -> None:
    def after(model: nn.Module) -> list[Tensor]:
        torch.manual_seed(3)
        for _ in range(2):
            model(torch.randn(16, 8)).square().sum().backward()
        return [*model.state_dict().values(), *(layouts.whole(each.grad) for each in model.parameters())]

    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(2)))
    kept = after(copy.deepcopy(model))
    for mode in MODES:
        changed = copy.deepcopy(model)
        apply_recompute(list(changed), mode, 2)
        copied = copy.deepcopy(changed)
        assert all(torch.equal(a, b) for a, b in zip(kept, after(changed), strict=True)), mode
        assert all(torch.equal(a, b) for a, b in zip(kept, after(copied), strict=True)), mode


def test_names_stay_and_what_is_kept_shrinks() -> None:
    model = ToyModel()
    names = list(model.state_dict())
    apply_recompute(list(model.blocks), "full")
    assert list(model.state_dict()) == names
    (batch, _), *_ = batches(sequences(4, 7, 13), None, 4)
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.blocks[0](model.embedding(batch["tokens"]))
    # of the embedding its tokens, of the block its input
    assert sum(each.numel() for each in kept) == batch["tokens"].numel() * (1 + WIDTH)


@pytest.mark.parametrize(
    "case",
    [
        layouts.Case(2, "full", 0, 2, recompute="selective"),
        layouts.Case(1, "ddp", 0, 2, pipeline=2, schedule="zero_bubble", virtual=2, recompute="full"),
        layouts.Case(1, "ddp", 0, 8, tensor=2, sequence=True, recompute="selective"),
    ],
    ids=lambda case: case.name,
)
def test_a_recomputed_cut_has_the_numbers_of_one_process(case: layouts.Case) -> None:
    found = layouts.compared(layouts.one_process("fp64", "adamw"), layouts.on(case, "fp64", "adamw"))
    assert max(found["loss"], found["norm"], found["weights"]) <= 1e-10


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(UserError, match="nothing can be recomputed"):
        parallelize(nn.Linear(2, 2), token_loss, Layout(), Parallel(), CPU, memory=Memory(recompute="full"))
