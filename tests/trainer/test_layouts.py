"""However a run is cut, it gives the numbers of one process."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.beds.runs import assert_same_weights, flags, losses, metrics, train_here, warm_trainer
from trainer.checkpoint.store import Store
from trainer.config import resolve
from trainer.errors import UserError
from trainer.mesh import Layout, plan_layout

GPT = {
    "model__build": "", "model__loss": "", "data__dataset": "", "model__layers": "2", "model__width": "16",
    "model__heads": "2", "model__tied": "true", "data__sequence": "12", "data__holdout": "4", "batch__size": "8",
    "batch__micro": "2", "run__steps": "5", "optim__name": "adamw", "optim__lr": "0.01", "optim__clip": "0.5",
    "optim__weight_decay": "0.1", "eval__sample_tokens": "5",
}  # fmt: skip


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    folder = tmp_path_factory.mktemp("one")
    text(folder)
    assert train_here(folder, **GPT, data__text=f'["{folder}/text-*.txt"]') == 0
    return folder


def text(folder: Path) -> None:
    for number in range(8):
        words = " ".join(str(number * at * at % 97) for at in range(90 + 7 * number))
        (folder / f"text-{number}.txt").write_text(words)


def cut(one: Path, folder: Path, nproc: int, *more: str, **changes: str) -> Path:
    """The same run on several ranks; its folder."""
    (folder / "run.toml").touch()
    words = flags(**{**GPT, **changes}, data__text=f'["{one}/text-*.txt"]', run__folder="run")
    done = warm_trainer("train", "run.toml", "--nproc", str(nproc), *words, *more, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def evaluation(run: Path) -> dict[str, Any]:
    """What the last evaluation gave."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return next(row for row in reversed(rows) if row.get("event") == "evaluation")


@pytest.mark.parametrize(
    ("ranks", "strategy", "shard"),
    [(2, "full", 0), (2, "gradients", 0), (4, "full", 2)],
    ids=["full", "gradients", "hybrid"],
)
def test_sharded_runs_are_those_of_one_process(
    one: Path, tmp_path: Path, ranks: int, strategy: str, shard: int
) -> None:
    run = cut(one, tmp_path, ranks, parallel__strategy=strategy, parallel__shard=str(shard))
    assert losses(run) == pytest.approx(losses(one / "run"), rel=1e-11)
    norms = [[row["grad_norm"] for row in metrics(each)] for each in (run, one / "run")]
    assert norms[0] == pytest.approx(norms[1], rel=1e-10)
    assert any(norm > 0.5 for norm in norms[0])
    assert_same_weights(run, one / "run", tolerance=1e-10)
    for name in ("loss", "bits_per_byte"):
        assert evaluation(run)[name] == pytest.approx(evaluation(one / "run")[name], rel=1e-11)


def test_a_run_goes_on_in_pipeline_stages_as_in_one_process(one: Path, tmp_path: Path) -> None:
    words = {**GPT, "checkpoint__every": "2", "data__text": f'["{one}/text-*.txt"]'}
    assert train_here(tmp_path, **words) == 0
    for later in Store(tmp_path / "run", 3).list()[1:]:
        shutil.rmtree(later)
    run = cut(one, tmp_path, 2, parallel__pipeline="2")
    assert losses(run) == pytest.approx(losses(one / "run"), rel=1e-11)
    assert_same_weights(run, one / "run", tolerance=1e-10)
    for name in ("loss", "bits_per_byte"):
        assert evaluation(run)[name] == pytest.approx(evaluation(one / "run")[name], rel=1e-11)
    kept, right = [torch.load(Store(each, 3).list()[-1] / "optimizer.pt") for each in (run, one / "run")]
    assert kept["parameters"].keys() == right["parameters"].keys()
    for name, entry in right["parameters"].items():
        assert kept["parameters"][name]["shape"] == entry["shape"]
        torch.testing.assert_close(kept["parameters"][name]["state"], entry["state"], rtol=1e-9, atol=1e-12)


def test_a_sharded_run_goes_on_where_another_layout_stopped(one: Path, tmp_path: Path) -> None:
    constant = {"optim__schedule": "constant"}
    for name in ("stopped", "whole"):
        (tmp_path / name).mkdir()
    whole = cut(one, tmp_path / "whole", 2, **constant)
    run = cut(one, tmp_path / "stopped", 2, "--run.steps", "2", **constant, parallel__strategy="full")
    kept = torch.load(Store(run, 3).list()[-1] / "optimizer.pt")
    assert {tuple(each["state"]["exp_avg"].shape) for each in kept["parameters"].values()} >= {(257, 16), (16,)}
    for steps, strategy in (("4", "gradients"), ("5", "optimizer")):
        cut(one, tmp_path / "stopped", 2, "--run.steps", steps, **constant, parallel__strategy=strategy)
    assert losses(run) == pytest.approx(losses(whole), rel=1e-11)
    assert_same_weights(run, whole, tolerance=1e-10)


def test_one_process_goes_on_as_tensor_ranks_and_back(one: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").touch()
    text = f'["{one}/text-*.txt"]'
    assert train_here(tmp_path, "--run.steps", "2", **GPT, data__text=text) == 0
    run = cut(one, tmp_path, 2, "--run.steps", "4", parallel__tensor="2", parallel__sequence_parallel="true")
    for name in ("loss", "bits_per_byte"):
        assert math.isfinite(evaluation(run)[name])
    assert train_here(tmp_path, "--run.steps", "5", **GPT, data__text=text) == 0
    assert losses(run) == pytest.approx(losses(one / "run"), rel=1e-11)
    assert_same_weights(run, one / "run", tolerance=1e-10)
    for name in ("loss", "bits_per_byte"):
        assert evaluation(run)[name] == pytest.approx(evaluation(one / "run")[name], rel=1e-11)


def layout(world: int, **changes: str) -> Any:
    settings = [(name.replace("__", "."), value) for name, value in changes.items()]
    return plan_layout(resolve("here", settings, {}, "").config, world)


def test_ranks_of_one_copy_are_neighbours() -> None:
    assert (layout(8, parallel__strategy="full").replicate, layout(8, parallel__strategy="full").shard) == (1, 8)
    hybrid = layout(8, parallel__strategy="full", parallel__shard="4")
    assert (hybrid.replicate, hybrid.shard) == (2, 4)
    assert [hybrid.index(rank)["replicate"] for rank in range(8)] == [0] * 4 + [1] * 4
    assert layout(8).data_ranks == layout(8, parallel__strategy="gradients", parallel__shard="2").data_ranks == 8


def test_ranks_of_one_tensor_group_are_neighbours_and_see_the_same_samples() -> None:
    cut = Layout(pipeline=2, replicate=2, shard=1, tensor=2)
    assert [cut.data_index(rank) for rank in range(8)] == [0, 0, 1, 1] * 2
    assert [cut.index(rank)["pipeline"] for rank in range(8)] == [0] * 4 + [1] * 4
    assert (cut.world_size, cut.data_ranks, cut.holders) == (8, 2, 4)


@pytest.mark.parametrize(
    ("changes", "what", "fix"),
    [
        (
            {"parallel__strategy": "full", "parallel__shard": "5"},
            "8 ranks is not a multiple of parallel.shard = 5",
            "Set parallel.shard to 4",
        ),
        ({"parallel__shard": "2"}, "strategy ddp shards no weights", "Set parallel.strategy to full"),
    ],
)
def test_what_does_not_come_out_even_is_refused(changes: dict[str, str], what: str, fix: str) -> None:
    with pytest.raises(UserError, match=what) as found:
        layout(8, **changes)
    assert fix in found.value.fix
