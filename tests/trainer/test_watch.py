"""What gradients look like: norms by layer and shares that fp16 loses, the same however the model is cut."""

from typing import Any

import pytest
import torch

from tests.beds.ranks import on_ranks
from tests.trainer.toy import ToyModel, batches, sequences, token_loss
from trainer.mesh import Layout
from trainer.optim import build_optimizer
from trainer.parallel import parallelize
from trainer.precision import LossScale, Policy
from trainer.schema import Optim, Parallel
from trainer.step import Step
from trainer.watch import Watch, described

CPU = torch.device("cpu")


def seen(rank: int, count: int, strategy: str) -> tuple[dict[str, Any], float]:
    """Of one update of the toy in fp64, and its gradient norm."""
    model = ToyModel().double()
    watch = Watch(model, norms=1, underflow=1)
    layout = Layout(replicate=count) if strategy == "ddp" else Layout(replicate=count // 2, shard=2)
    cut = parallelize(model, token_loss, layout, Parallel(strategy=strategy), CPU)
    optimizers = build_optimizer(model, Optim(name="sgd"), CPU)
    policy = Policy(torch.float64, torch.float64, None, LossScale(1024.0, 2000, 1.0))
    step = Step(cut, optimizers, policy, CPU, clip=0.0)
    everything = batches(sequences(4, 8, 3), [1, 7, 2, 3], 1)
    share = len(everything) // count
    outcome = step(everything[rank * share : (rank + 1) * share], 7.0, 1.0, False, watch.at(1))
    return outcome.seen, outcome.grad_norm


def test_layers_norms_make_up_the_whole_and_do_not_depend_on_the_layout() -> None:
    alone, norm = seen(0, 1, "ddp")
    assert list(alone["grad_norms"]) == ["embedding", "blocks.0", "blocks.1", "head"]
    assert sum(each**2 for each in alone["grad_norms"].values()) ** 0.5 == pytest.approx(norm, rel=1e-12)
    right = sum(float(each.double().square().sum()) for each in ToyModel().double().parameters()) ** 0.5
    assert sum(each**2 for each in alone["weight_norms"].values()) ** 0.5 == pytest.approx(right, rel=1e-12)
    assert sum(alone["exponents"].values()) + alone["underflow"] == pytest.approx(1.0, abs=1e-4)
    for ranks, strategy in ((2, "ddp"), (2, "full"), (4, "full")):
        for found, _ in on_ranks(ranks, seen, strategy):
            for name in ("grad_norms", "weight_norms"):
                assert found[name] == pytest.approx(alone[name], rel=1e-10)
            assert found["underflow"] == pytest.approx(alone["underflow"])


def test_nothing_is_looked_at_between() -> None:
    watch = Watch(ToyModel(), norms=0, underflow=5)
    assert [watch.at(update) is not None for update in range(1, 11)] == [False] * 4 + [True] + [False] * 4 + [True]


def test_shares_are_of_gradients_with_the_scale_and_exponents_of_those_without() -> None:
    counts = [0.0] * 257
    for exponent, share in ((-30, 1.0), (-25, 1.0), (-20, 4.0), (-8, 2.0)):
        counts[exponent + 127] += share
    counts[256] = 2.0  # 2^-25 rounds to zero as well
    found = described(counts, 2.0**-10)
    assert found["underflow"] == 0.25
    assert found["subnormal"] == 0.5
    assert found["exponents"] == {"-40": 0.125, "-36": 0.125, "-32": 0.5, "-20": 0.25}
