"""Options of DDP: unused parameters are named, gradients may be sent in fewer bytes."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from tests.beds.ranks import on_ranks
from trainer.errors import UserError
from trainer.mesh import Layout
from trainer.optim import build_optimizer
from trainer.parallel import parallelize
from trainer.precision import Policy
from trainer.schema import Optim, Parallel
from trainer.step import Step

CPU = torch.device("cpu")


class Two(nn.Module):
    """A layer that is used, and one that is used by samples above 0."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.always = nn.Linear(8, 8)
        self.sometimes = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.always(x)
        return cast(Tensor, self.sometimes(y) if float(x[0, 0]) > 0 else y)


def square(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    return model(x).square().sum(), torch.tensor(len(x))


def trained(rank: int, count: int, settings: dict[str, Any], signs: list[float], micro: int = 1) -> Any:
    """Weights after an update for each sign, which is that of all samples of the last rank; others are positive."""
    model = Two()
    cut = parallelize(model, square, Layout(replicate=count), Parallel(**settings), CPU)
    optimizers = build_optimizer(model, Optim(name="sgd", lr=0.01, weight_decay=0.0), CPU)
    step = Step(cut, optimizers, Policy(torch.float32, torch.float32), CPU, clip=0.0)
    for update, sign in enumerate(signs):
        generator = torch.Generator().manual_seed(update)
        samples = torch.rand(4 * micro, 8, generator=generator).chunk(count)[rank]
        if rank == count - 1:
            samples = samples * sign
        try:
            step([(part, len(part)) for part in samples.chunk(micro)], 4.0 * micro, 1.0, False)
        except UserError as error:
            return error.what, error.fix
    return [each.detach().clone() for each in model.parameters()]


def far(first: list[Tensor], second: list[Tensor]) -> float:
    pairs = zip(first, second, strict=True)
    return max(float((a - b).norm() / b.norm()) for a, b in pairs)


def test_an_unused_parameter_is_an_error_that_names_it() -> None:
    found = on_ranks(2, never)
    assert found[0] == found[1]
    what, fix = found[0]
    assert "sometimes.weight, sometimes.bias" in what
    assert "always" not in what
    assert "parallel.unused to find" in fix


def never(rank: int, count: int) -> Any:
    """Both ranks leave the second layer out."""
    model = Two()
    cut = parallelize(model, square, Layout(replicate=count), Parallel(), CPU)
    step = Step(cut, build_optimizer(model, Optim(name="sgd"), CPU), Policy(torch.float32, torch.float32), CPU, clip=0)
    try:
        step([(-torch.ones(1, 8), 1)], 2.0, 1.0, False)
    except UserError as error:
        return error.what, error.fix
    return None


def test_what_is_used_on_some_ranks_only_can_be_found() -> None:
    alone = trained(0, 1, {}, [1.0, 1.0])
    for found in on_ranks(2, trained, {"unused": "find"}, [1.0, 1.0]):
        assert far(found, alone) < 1e-6
    first, second = on_ranks(2, trained, {"unused": "find"}, [-1.0, 1.0, -1.0])
    assert far(first, second) == 0.0


@pytest.mark.parametrize(
    ("settings", "low", "high"),
    [
        ({"static_graph": True}, 0.0, 1e-6),
        ({"compress": "bf16"}, 1e-7, 1e-3),
        ({"compress": "fp16"}, 1e-8, 1e-4),
        ({"compress": "powersgd", "powersgd_rank": 1}, 1e-6, 1e-2),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_gradients_sent_in_fewer_bytes_stay_near_and_alike(settings: dict[str, Any], low: float, high: float) -> None:
    micro = 1 if "static_graph" in settings else 2
    alone = trained(0, 1, {}, [1.0] * 4, micro)
    first, second = on_ranks(2, trained, settings, [1.0] * 4, micro)
    assert far(first, second) == 0.0
    assert low <= far(first, alone) < high
