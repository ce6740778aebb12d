"""Whole runs in lower formats: they resume bit for bit, count skipped updates, and tell what gradients look like."""

from pathlib import Path

import pytest
import torch

from tests.beds.runs import assert_same_weights, flags, losses, metrics, train_here, warm_trainer, weights
from trainer.checkpoint.store import Store

LOW = {"precision__compute": "bf16", "precision__weights": "bf16", "optim__name": "adamw", "optim__lr": "0.003"}
HALF = {"precision__compute": "fp16", "precision__growth": "2", "precision__loss_scale": "512"}


@pytest.mark.parametrize(
    "formats",
    [HALF, {**LOW, "precision__update": "stochastic"}, {**LOW, "precision__update": "kahan"}],
    ids=["fp16", "stochastic", "kahan"],
)
def test_a_resumed_run_is_the_run_never_stopped(tmp_path: Path, formats: dict[str, str]) -> None:
    whole, stopped = str(tmp_path / "whole"), str(tmp_path / "run")
    assert train_here(tmp_path, run__folder=whole, run__steps="6", **formats) == 0
    assert train_here(tmp_path, run__folder=stopped, run__steps="3", **formats) == 0
    assert train_here(tmp_path, run__folder=stopped, run__steps="6", **formats) == 0
    assert losses(Path(stopped)) == losses(Path(whole))
    assert_same_weights(Path(stopped), Path(whole))
    scales = [[row.get("loss_scale") for row in metrics(Path(run))] for run in (stopped, whole)]
    assert scales[0] == scales[1]
    if formats is HALF:
        assert scales[0] == [512.0, 1024.0, 1024.0, 2048.0, 2048.0, 4096.0]
    else:
        assert {each.dtype for each in weights(Path(whole)).values()} == {torch.bfloat16}
        kept = torch.load(Store(Path(whole), 3).list()[-1] / "optimizer.pt")
        assert {each["state"]["exp_avg"].dtype for each in kept["parameters"].values()} == {torch.bfloat16}
        assert losses(Path(whole))[-1] < losses(Path(whole))[0]


def test_the_schedule_counts_updates_that_all_shards_applied(tmp_path: Path) -> None:
    (tmp_path / "run.toml").touch()
    words = flags(
        model__loss="tests.trainer.toy_losses:infinite_on_rank_1_in_third_update",
        parallel__strategy="full", precision__compute="fp16", precision__loss_scale="1024", optim__lr="0.4",
        optim__warmup="4", batch__size="10", batch__micro="1", run__steps="8", log__norms="4", log__underflow="3",
        run__folder="run", **{"data__options.count": "80"},
    )  # fmt: skip
    done = warm_trainer("train", "run.toml", "--nproc", "2", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = metrics(tmp_path / "run")
    rates = [None if row.get("skipped") else round(row["lr"], 6) for row in rows]
    assert rates == [0.1, 0.2, None, 0.3, 0.4, 0.4, 0.4, 0.4]
    assert [row["loss_scale"] for row in rows] == [1024.0] * 2 + [512.0] * 6
    assert [row["skipped_updates"] for row in rows] == [0, 0] + [1] * 6
    assert [row["step"] for row in rows if "grad_norms" in row] == [4, 8]
    assert [row["step"] for row in rows if "underflow" in row] == [3, 6]
    assert sum(norm**2 for norm in rows[3]["grad_norms"].values()) ** 0.5 == pytest.approx(rows[3]["grad_norm"])
    assert 0 <= rows[5]["underflow"] < 1
