"""Settings that are legal and hardly meant."""

from pathlib import Path

import pytest

from tests.beds.runs import train_here
from tests.trainer.data.made import text_config, write_documents
from trainer import doubts
from trainer.data import open_data
from trainer.errors import UserError
from trainer.schema import Config


def test_sound_settings_raise_no_doubt(tmp_path: Path) -> None:
    config = text_config(write_documents(tmp_path / "c", ["some text " * 900] * 3))
    config.optim.warmup, config.run.steps, config.run.threads = 9, 10, 4
    assert doubts.of_settings(config, 2) == []
    assert doubts.of_data(config, open_data(config, tmp_path / "run"), 10) == []


def test_a_warm_up_that_never_ends_and_too_many_threads() -> None:
    config = Config()
    config.run.steps, config.optim.warmup, config.run.threads = 1000, 2000, 1000
    assert doubts.of_settings(config, 2) == [
        "optim.warmup = 2,000 is not shorter than the run of 1,000 updates: the learning rate never reaches optim.lr",
        "run.threads = 1,000 is more than four times the 2 cores of this machine",
    ]


def test_sequences_and_batches_larger_than_the_data(tmp_path: Path) -> None:
    config = text_config(write_documents(tmp_path / "c", ["x" * 649] * 10))
    config.data.sequence, config.optim.warmup = 100_000, 5
    assert doubts.of_data(config, open_data(config, tmp_path / "run"), 1) == [
        "an update takes 32 samples and the training data has 1: every epoch is one update",
        "data.sequence = 100,000 is longer than the training data of 6,500 tokens: 94% of what is computed is padding",
        "optim.warmup = 5 is not shorter than the run of 1 updates: the learning rate never reaches optim.lr",
    ]


def test_they_are_said_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_here(tmp_path, run__steps="2", optim__warmup="5") == 0
    assert "warning: optim.warmup = 5 is not shorter than the run of 2 updates" in capsys.readouterr().err


def test_a_run_that_never_ends_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run\.steps must be at most 1000000000000") as refused:
        train_here(tmp_path, run__steps="100000000000000000000")
    assert refused.value.status == 2
