"""What a rank of a pipeline holds: its own stages only, and so many micro-batches."""

import gc
import weakref
from collections import Counter

import pytest
import torch
from torch import nn

from tests.beds.ranks import on_ranks
from trainer.mesh import Layout
from trainer.models import build_model
from trainer.models.loss import token_loss
from trainer.parallel import parallelize
from trainer.parallel.pipeline import SEVERAL
from trainer.schedules import held, stages_of
from trainer.schema import Model, Parallel

CPU = torch.device("cpu")


def living(rank: int, count: int, schedule: str, tied: bool) -> tuple[set[str], set[str]]:
    """Names of the parameters that are alive after the cut, and of those that the rank's model has."""
    model = build_model(Model(kind="gpt", layers=4, width=16, heads=2, tied=tied), vocabulary=31)
    alive = {name: weakref.ref(each) for name, each in model.named_parameters()}
    cut = parallelize(model, token_loss, Layout(pipeline=count), Parallel(pipeline=count, schedule=schedule), CPU)
    gc.collect()
    names = {name for name, each in alive.items() if each() is not None}
    own = {name for name, _ in cut.module.named_parameters()}
    return names, own


@pytest.mark.parametrize("schedule", ["1f1b", "zbv"])
@pytest.mark.parametrize("tied", [False, True])
def test_weights_of_other_stages_are_gone(schedule: str, tied: bool) -> None:
    found = on_ranks(2, living, schedule, tied)
    for names, own in found:
        assert names == own
    assert not any(name.startswith("blocks.0.") for name in found[1][0])
    assert any(name.startswith("blocks.0.") for name in found[0][0])


class _Stage:
    """As much of a stage as torch's schedules ask for when they order its micro-batches."""

    has_backward = True
    group_rank = 0
    device = CPU
    group = None

    def __init__(self, index: int, stages: int, ranks: int) -> None:
        self.stage_index = index
        self.num_stages = stages
        self.group_size = ranks
        self.is_first = index == 0
        self.is_last = index == stages - 1
        self.stage_index_to_group_rank: dict[int, int] = {}
        self.submod = nn.Identity()


def most(actions: list[object]) -> list[int]:
    """Micro-batches of each stage, in the order of their first forward, when the rank first has the most in all."""
    now: Counter[int] = Counter()
    best: dict[int, int] = {}
    for action in actions:
        for each in getattr(action, "sub_actions", None) or [action]:
            kind = getattr(getattr(each, "computation_type", None), "name", "")
            stage = getattr(each, "stage_index", -1)
            now[stage] += {"FORWARD": 1, "FULL_BACKWARD": -1, "BACKWARD_WEIGHT": -1}.get(kind, 0)
            if sum(now.values()) > sum(best.values()):
                best = {stage: count for stage, count in now.items() if stage >= 0}
    return list(best.values())


@pytest.mark.parametrize(
    ("schedule", "virtual"),
    [("interleaved", 2), ("interleaved", 3), ("zero_bubble", 2), ("zero_bubble", 3), ("zbv", 2), ("dualpipev", 2)],
)
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (2, 8), (4, 8), (4, 20)])
def test_micro_batches_held_are_those_of_torchs_order(
    schedule: str, virtual: int, ranks: int, micro_batches: int
) -> None:
    own = stages_of(0, ranks, schedule, virtual)
    stages = [_Stage(index, ranks * virtual, ranks) for index in own]
    order = SEVERAL[schedule](stages, micro_batches, lambda output, target: output).pipeline_order
    for rank in range(ranks):
        assert held(schedule, ranks, rank, micro_batches, virtual) == most(order[rank])
