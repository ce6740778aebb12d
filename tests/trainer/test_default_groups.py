"""Batch norms by default: the same groups of samples, so the same numbers, in every layout, as `verify` compares."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.beds.ranks import on_ranks
from tests.beds.runs import flags, losses, train_here
from trainer.cli import main
from trainer.config import resolve
from trainer.data.datasets import open_data
from trainer.errors import UserError
from trainer.mesh import Layout, plan_batch, plan_layout, usual_norm_group
from trainer.schema import Config
from trainer.verification.compare import compare, odd_batches
from trainer.verification.rank import one_rank
from trainer.verification.trial import run_updates

CPU = torch.device("cpu")
RESNET = {
    "model__build": "",
    "model__loss": "",
    "model__kind": "resnet",
    "model__image": "4",
    "model__channels": "2",
    "model__stages": "1,1",
    "model__filters": "4",
    "model__classes": "3",
    "data__dataset": "tests.trainer.toy_data:Pictures",
    "batch__size": "16",
    "optim__lr": "0.05",
}
OWN = RESNET | {
    "model__build": "tests.trainer.toy_models:with_batch_norm",
    "model__loss": "tests.trainer.toy_models:picture_loss",
    "model__kind": "",
}


def config(**changes: str) -> Config:
    words = flags(**changes)
    return resolve(None, list(zip((word[2:] for word in words[::2]), words[1::2], strict=True)), {}).config


def beside_one_rank(rank: int, count: int, changes: dict[str, str]) -> dict[str, Any]:
    """One rank by default settings, and `count` ranks with `changes`; the last update of the epoch is shorter."""
    alone, cut = config(**{**changes, "parallel__pipeline": "1"}), config(**changes)
    layout = plan_layout(cut, count)
    data = open_data(alone, Path("none"))
    one = run_updates(alone, Layout(), plan_batch(alone, 1), data, CPU, rank=0, updates=2)
    other = run_updates(cut, layout, plan_batch(cut, layout.data_ranks), data, CPU, rank=rank, updates=2)
    return compare(one, other, 1e-11) if rank == 0 else {}


@pytest.mark.parametrize("model", [RESNET, OWN], ids=["built-in", "own"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"parallel__pipeline": "2"}, {"parallel__sync_batch_norm": "true"}],
    ids=["2 ranks", "pipeline 2", "2 ranks, synchronized"],
)
def test_defaults_give_the_numbers_of_one_rank(model: dict[str, str], changes: dict[str, str]) -> None:
    if model is OWN and "parallel__pipeline" in changes:
        pytest.skip("the toy has no plan that says where it may be cut")
    found = on_ranks(2, beside_one_rank, {**model, **changes})[0]
    assert found["equal"], found
    assert found["weights"]["worst"] < 1e-10


def test_the_group_is_a_quarter_of_the_batch() -> None:
    assert [usual_norm_group(size) for size in (1, 4, 8, 16, 32, 36, 64, 512)] == [1, 4, 4, 4, 8, 9, 16, 128]
    chosen = config(**{**RESNET, "batch__size": "32"})
    assert [(plan.micro, plan.accumulation) for plan in (plan_batch(chosen, ranks) for ranks in (1, 2, 4))] == [
        (8, 4),
        (8, 2),
        (8, 1),
    ]
    chosen.parallel.sync_batch_norm = True
    assert [(plan.micro, plan.norm_group) for plan in (plan_batch(chosen, ranks) for ranks in (1, 4, 8))] == [
        (8, 8),
        (2, 8),
        (1, 8),
    ]


def test_a_layout_that_cannot_keep_the_groups_is_refused_with_the_ways_out() -> None:
    chosen = config(**{**RESNET, "batch__size": "32"})
    with pytest.raises(UserError, match=r"over 8 samples by default.* each of 8 ranks has 4 samples") as caught:
        plan_batch(chosen, 8)
    assert caught.value.status == 2
    assert "Set parallel.sync_batch_norm to true" in caught.value.fix
    chosen.batch.micro = 4
    assert plan_batch(chosen, 8).norm_group == 4


def synchronized(rank: int, count: int, changes: dict[str, str]) -> tuple[bool, list[str]]:
    """As `verify` does it, where `batch.micro` is set: a forward of one rank has the samples of all ranks' together."""
    from trainer.mesh import BatchPlan
    from trainer.verification.trial import sample_digests

    chosen = config(**changes)
    plan = plan_batch(chosen, count)
    data = open_data(chosen, Path("none"))
    one = run_updates(chosen, Layout(), one_rank(plan), data, CPU, rank=0, updates=2)
    parts = BatchPlan(plan.size, plan.micro, plan.size // plan.micro, 1)
    one = one._replace(batches=sample_digests(chosen, parts, data, CPU, 2))
    other = run_updates(chosen, plan_layout(chosen, count), plan, data, CPU, rank=rank, updates=2)
    digests: list[Any] = [None] * count
    torch.distributed.all_gather_object(digests, (rank, rank, other.batches))
    return bool(compare(one, other, 1e-11)["equal"]), odd_batches(one, digests, count)


def test_verify_compares_synchronized_norms_on_equal_groups() -> None:
    assert on_ranks(2, synchronized, {**RESNET, "parallel__sync_batch_norm": "true", "batch__micro": "2"})[0] == (
        True,
        [],
    )


def test_verify_says_which_groups_it_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").touch()
    words = flags(**{**RESNET, "precision__compute": "auto", "parallel__sync_batch_norm": "true"})
    assert main(["verify", str(tmp_path / "run.toml"), *words, "--nproc", "1", "--updates", "1"]) == 0
    assert "batch norms take their statistics over the same 4 samples in both" in capsys.readouterr().out


def test_check_tells_the_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").touch()
    assert main(["check", str(tmp_path / "run.toml"), *flags(**RESNET), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batch"]["norm_group"] == 4
    assert main(["check", str(tmp_path / "run.toml"), *flags(**RESNET), "--world", "2"]) == 0
    assert "# batch norms          statistics over 4 samples (the same in every layout)" in capsys.readouterr().out


def test_training_says_that_a_model_of_ones_own_gets_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_here(tmp_path, **{**OWN, "run__steps": "1"}) == 0
    assert "batch norms: statistics over 4 samples in every layout, so 4 forwards of 4" in capsys.readouterr().err


@pytest.mark.parametrize("compute", ["fp32", "bf16", "fp64"])
def test_a_data_set_of_float64_trains(compute: str, tmp_path: Path) -> None:
    changes = {"precision__compute": compute, "run__steps": "1", "data__options": '{dtype = "float64"}'}
    assert train_here(tmp_path, **{**RESNET, **changes}) == 0
    assert len(losses(tmp_path / "run")) == 1
