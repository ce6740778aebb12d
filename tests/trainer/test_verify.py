"""`verify` says whether a layout gives the numbers of one process, and finds what is wrong with a model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.beds.ranks import on_ranks
from tests.beds.runs import TOY, flags, trainer
from tests.trainer.toy import ToyModel, batches, sequences, token_loss
from tests.trainer.toy_broken import BatchNorm, HiddenDropout, mean_loss
from trainer.cli import main
from trainer.config import resolve
from trainer.data.datasets import open_data
from trainer.mesh import BatchPlan, Layout, plan_batch, plan_layout
from trainer.precision import Policy
from trainer.schema import Config
from trainer.verification.compare import compare, odd_batches
from trainer.verification.probe import Findings, halves, probe
from trainer.verification.text import lines
from trainer.verification.trial import run_updates

CPU = torch.device("cpu")
BROKEN = "tests.trainer.toy_broken"


def config(**changes: str) -> Config:
    settings = {**TOY, "batch.size": "8", "batch.micro": "2"}
    settings |= {name.replace("__", "."): value for name, value in changes.items()}
    return resolve(None, list(settings.items()), {}).config


def compared(rank: int, count: int, changes: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """One process and `count` ranks, as `verify` compares them, and what is odd about their samples."""
    chosen = config(**changes)
    plan = plan_batch(chosen, count)
    data = open_data(chosen, Path("none"))
    alone = BatchPlan(plan.size, plan.micro, plan.size // plan.micro, 1)
    one = run_updates(chosen, Layout(), alone, data, CPU, rank=0, updates=2)
    other = run_updates(chosen, plan_layout(chosen, count), plan, data, CPU, rank=rank, updates=2)
    digests: list[Any] = [None] * count
    torch.distributed.all_gather_object(digests, (rank, rank, other.batches))
    return (compare(one, other, 1e-10), odd_batches(one, digests, count)) if rank == 0 else ({}, [])


@pytest.mark.parametrize("strategy", ["ddp", "full"])
def test_a_good_model_is_equal_on_two_ranks(strategy: str) -> None:
    result, odd = on_ranks(2, compared, {"parallel__strategy": strategy, "optim__clip": "0.1"})[0]
    assert result["equal"]
    assert odd == []
    assert set(result["gradients"]["by_parameter"]) == {name for name, _ in ToyModel().named_parameters()}
    assert result["weights"]["whole"] < 1e-12


def test_a_model_that_depends_on_the_rank_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    result, odd = on_ranks(2, compared, {"model__build": f"{BROKEN}:OtherOnSecondRank"})[0]
    assert not result["equal"]
    assert odd == []
    assert result["gradients"]["worst"] > 0.1
    assert result["gradients"]["where"] in dict(ToyModel().named_parameters())


def test_other_samples_on_another_rank_are_told() -> None:
    result, odd = on_ranks(2, compared, {"data__dataset": f"{BROKEN}:OwnSamples"})[0]
    assert not result["equal"]
    assert ["rank 1 got other samples" in line for line in odd] == [True]


def probed(model: torch.nn.Module, loss: Any = token_loss) -> Findings:
    batch = batches(sequences(4, 6, 3), [5, 1, 3, 0], 4)[0][0]
    policy = Policy(torch.float32, torch.float32, None, None)
    return probe(model, loss, batch, policy, CPU, 1e-5)


def test_a_loss_that_is_a_mean_is_named() -> None:
    assert probed(ToyModel()).problems == probed(ToyModel()).notes == []
    assert "returns a mean" in probed(ToyModel(), mean_loss).problems[0]


def test_what_makes_numbers_depend_on_more_than_the_samples_is_noted() -> None:
    assert "norm: BatchNorm" in probed(BatchNorm()).notes[0]
    assert "draws random numbers" in probed(HiddenDropout()).notes[0]


def test_halves_of_what_can_be_halved() -> None:
    pair = (torch.arange(5), {"a": torch.arange(10).view(5, 2)})
    found = halves(pair)
    assert found is not None
    assert [len(part[0]) for part in found] == [2, 3]
    assert torch.equal(found[1][1]["a"], pair[1]["a"][2:])
    assert halves((torch.arange(5), torch.arange(4))) is None
    assert halves(torch.arange(1)) is None


def test_one_rank_equals_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").touch()
    words = flags(batch__size="8", model__options="{dropout = 0.0}", run__folder=str(tmp_path / "run"))
    assert main(["verify", str(tmp_path / "run.toml"), *words, "--nproc", "1", "--updates", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]
    assert found["gradients"]["worst"] == 0.0
    assert "equal (tolerance 1e-10" in list(lines(found))[-1]
    assert not (tmp_path / "run").exists()


def test_the_exit_status_says_that_a_run_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "run.toml").touch()
    words = flags(batch__size="8", batch__micro="2", model__loss=f"{BROKEN}:mean_loss")
    done = trainer("verify", "run.toml", *words, "--nproc", "2", "--updates", "1", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "problem: the loss returns a mean" in done.stdout
    assert "NOT equal" in done.stdout.splitlines()[-1]
    assert list(tmp_path.iterdir()) == [tmp_path / "run.toml"]
