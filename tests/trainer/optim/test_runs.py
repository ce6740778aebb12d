"""Whole runs with averaged weights, in this process."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.beds.runs import losses, train_here

EMA = {"optim__average": "ema", "optim__ema_decay": "0.9", "optim__name": "adamw", "optim__lr": "0.05"}


def kept(run: Path, name: str) -> dict[str, Any]:
    """A file of the newest checkpoint."""
    found: dict[str, Any] = torch.load(sorted((run / "checkpoints").glob("step-*"))[-1] / name)
    return found


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_averages_are_saved_and_training_goes_on_without_them(tmp_path: Path) -> None:
    for name in ("plain", "averaged", "stopped"):
        (tmp_path / name).mkdir()
    assert train_here(tmp_path / "plain", **{**EMA, "optim__average": "none"}, run__steps="5") == 0
    assert train_here(tmp_path / "averaged", **EMA, run__steps="5", eval__every="2") == 0
    assert train_here(tmp_path / "stopped", **EMA, run__steps="2") == 0
    assert train_here(tmp_path / "stopped", **EMA, run__steps="5") == 0
    plain, averaged, stopped = (tmp_path / name / "run" for name in ("plain", "averaged", "stopped"))
    assert losses(plain) == losses(averaged) == losses(stopped)
    assert same(kept(plain, "model.pt"), kept(averaged, "trained.pt"))
    assert not same(kept(averaged, "model.pt"), kept(averaged, "trained.pt"))
    for name in ("model.pt", "trained.pt"):
        assert same(kept(averaged, name), kept(stopped, name))
    # without the average from here on: the weights themselves
    assert train_here(tmp_path / "stopped", **{**EMA, "optim__average": "none"}, run__steps="6") == 0
    assert train_here(tmp_path / "plain", **{**EMA, "optim__average": "none"}, run__steps="6") == 0
    assert same(kept(plain, "model.pt"), kept(stopped, "model.pt"))


def test_what_is_evaluated_is_what_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from trainer.commands.evaluate import run as evaluate

    text = tmp_path / "text.txt"
    text.write_text(" ".join(str(number * number % 97) for number in range(400)))
    sizes = {"model__layers": "1", "model__width": "16", "model__heads": "2", "data__sequence": "12"}
    own = {"model__build": "", "model__loss": "", "data__dataset": "", "data__text": f'["{text}"]', **sizes}
    rule = {"optim__name": "schedule_free", "optim__lr": "0.05", "optim__betas": "[0.9, 0.95]"}
    words = {"data__validation": f'["{text}"]', "run__steps": "6", "eval__samples": "4"}
    assert train_here(tmp_path, **own, **rule, **words) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    told = next(row for row in reversed(rows) if row.get("event") == "evaluation")
    capsys.readouterr()
    assert evaluate([str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == pytest.approx(told["loss"], rel=1e-12)
