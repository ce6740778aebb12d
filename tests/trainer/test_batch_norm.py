"""Batch norms over several ranks: weights and running statistics are those of one process with the same groups."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.beds.ranks import on_ranks
from tools.layouts import whole
from trainer.data.loader import Loader
from trainer.mesh import Layout
from trainer.models import build_model
from trainer.models.loss import classification_loss
from trainer.optim import build_optimizer
from trainer.parallel import parallelize
from trainer.parallel.batch_norm import Statistics
from trainer.precision import Policy
from trainer.schema import Model, Optim, Parallel
from trainer.step import Step

CPU = torch.device("cpu")
# an update of 8 and one of 5 an epoch: in the last forwards of two or four ranks some have nothing
SAMPLES, BATCH, UPDATES = 13, 8, 5
RESNET = Model(kind="resnet", image=4, channels=2, stages=[1, 1], filters=4, classes=3)


class Noise:
    """Images and classes by a seed."""

    tokens_per_sample = 1

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.images = torch.randn(SAMPLES, 2, 4, 4, generator=generator) * 2 + 1
        self.labels = torch.randint(3, (SAMPLES,), generator=generator)

    def __len__(self) -> int:
        return SAMPLES

    def fetch(self, indices: Any, epoch: int = 0) -> dict[str, Tensor]:
        index = torch.as_tensor(list(indices))
        return {"inputs": self.images[index], "labels": self.labels[index]}


def updates(
    rank: int, count: int, micro: int, degrees: dict[str, int], strategy: str, sync: bool
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and norms of some updates; then the weights and buffers that this rank has, whole."""
    torch.manual_seed(1)
    model = build_model(RESNET, vocabulary=0).double()
    layout = Layout(**degrees)
    cut = parallelize(
        model,
        classification_loss,
        layout,
        Parallel(strategy=strategy, sync_batch_norm=sync, schedule="1f1b"),
        CPU,
    )
    policy = Policy(torch.float64, torch.float64, None, None)
    step = Step(cut, build_optimizer(model, Optim(name="sgd", lr=0.05, clip=0.5), CPU), policy, CPU, clip=0.5)
    data_rank = layout.data_index(rank)
    loader = Loader(
        Noise(), global_batch=BATCH, micro_batch=micro, dp_rank=data_rank, dp_size=layout.data_ranks, seed=2
    )
    told = []
    for number, update in enumerate(loader.updates(0)):
        if number == UPDATES:
            break
        outcome = step(update.micro_batches, float(update.samples), 1.0, False)
        told += [outcome.loss, outcome.grad_norm]
        if cut.settle and (update.samples < BATCH or number in (0, UPDATES - 1)):
            cut.settle()
    return told, {name: whole(value) for name, value in model.state_dict().items()}


@pytest.mark.parametrize(
    ("degrees", "strategy", "sync"),
    [
        ({"replicate": 2}, "ddp", False),
        ({"replicate": 4}, "ddp", False),
        ({"replicate": 2, "shard": 2}, "full", False),
        ({"pipeline": 2, "replicate": 2}, "ddp", False),
        ({"shard": 2}, "gradients", True),
        ({"replicate": 4}, "ddp", True),
    ],
)
def test_statistics_are_those_of_one_process(degrees: dict[str, int], strategy: str, sync: bool) -> None:
    layout = Layout(**degrees)
    micro = 2 if layout.data_ranks == 2 else 1
    told, state = updates(0, 1, micro * layout.data_ranks if sync else micro, {}, "ddp", False)
    seen: set[str] = set()
    for other, other_state in on_ranks(layout.world_size, updates, micro, degrees, strategy, sync):
        assert other == pytest.approx(told, rel=1e-11)
        seen |= other_state.keys()
        for name, value in other_state.items():
            if name.endswith("num_batches_tracked"):
                assert torch.equal(value, state[name]), name
            else:
                assert float((value - state[name]).norm()) <= 1e-11 * float(state[name].norm() + 1), name
    assert seen == state.keys()


def gradients(rank: int, count: int) -> float:
    """Largest difference of what a synchronized norm gives this rank, forward and backward, from the plain one's part
    where it sees all; the ranks see 3 and 2 samples, the third none that count."""
    from trainer.parallel.sync_batch_norm import apply_sync_batch_norm

    torch.manual_seed(4)
    x, weights = torch.randn(5, 3, 2).double(), torch.randn(5, 3, 2).double()
    parts = [slice(0, 3), slice(3, 5), slice(0, 1)]
    plain = nn.Sequential(nn.BatchNorm1d(3)).double()
    mine = nn.Sequential(nn.BatchNorm1d(3)).double()
    apply_sync_batch_norm(mine)
    everything, own = x.clone().requires_grad_(), x[parts[rank]].clone().requires_grad_()
    (plain(everything) * weights).sum().backward()
    mine[0].counted = rank < 2  # type: ignore[assignment]
    ((made := mine(own)) * weights[parts[rank]] * float(rank < 2)).sum().backward()
    summed = mine[0].weight.grad.clone()  # type: ignore[union-attr, operator]
    torch.distributed.all_reduce(summed)
    assert own.grad is not None and everything.grad is not None
    expected = everything.grad[parts[rank]] if rank < 2 else torch.zeros(1, 3, 2)
    differences = [
        made - plain(x)[parts[rank]],
        own.grad - expected,
        summed - plain[0].weight.grad,  # type: ignore[operator]
    ]
    return max(float(each.abs().max()) for each in differences)


def test_a_synchronized_norm_has_the_gradient_of_one_that_sees_all() -> None:
    assert max(on_ranks(3, gradients)) <= 1e-13


def averaged(rank: int, count: int, momentum: float | None) -> tuple[Tensor, Tensor]:
    """Running mean after four groups each, settled twice; and that of one norm that saw all of them in turns."""
    norm, one = nn.BatchNorm1d(2, momentum=momentum).double(), nn.BatchNorm1d(2, momentum=momentum).double()
    statistics = Statistics([norm])
    for round in range(4):
        for turn in range(count):
            x = torch.randn(3, 2, generator=torch.Generator().manual_seed(round * count + turn)).double()
            one(x)
            if turn == rank:
                norm(x)
        if round in (1, 3):
            statistics.settle()
    assert norm.running_mean is not None and one.running_mean is not None
    return norm.running_mean, one.running_mean


@pytest.mark.parametrize("momentum", [None, 0.0, 0.1, 1.0])
def test_any_momentum_settles_right(momentum: float | None) -> None:
    for settled, one in on_ranks(2, averaged, momentum):
        assert torch.allclose(settled, one, rtol=1e-13, atol=1e-15)
