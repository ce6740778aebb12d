"""The commands beside `train`, and the command line itself."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.beds.runs import command, environ, trainer
from trainer.cli import COMMANDS, main
from trainer.config import resolve
from trainer.schema import Config

TINY = [
    "--data.sequence", "32", "--batch.size", "8", "--model.layers", "1", "--model.width", "32", "--model.heads", "2",
    "--run.steps", "6", "--log.progress", "none", "--precision.compute", "fp32", "--run.threads", "1",
    "--start.layers", "[]",
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a little text, as the current one."""
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text(f"document {number} says hello to the world\n" * 40)
    (tmp_path / "run.toml").write_text('[data]\ntext = ["*.txt"]\n[run]\nfolder = "out"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    printed = capsys.readouterr().out
    assert "usage:" in printed
    assert "example" in printed


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "Did you mean 'train'?" in capsys.readouterr().err


def test_init_writes_a_run_file_of_defaults_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "new.toml"]) == 0
    text = (here / "new.toml").read_text()
    read = resolve("new.toml", [], {}, text).config
    read.data.text = []
    assert read == Config()
    uncommented = "\n".join(
        line.removeprefix("# ") if " = " in line and line.startswith("# ") and not line.startswith("# A") else line
        for line in text.splitlines()
    )
    assert resolve("new.toml", [], {}, uncommented).config.optim.lr == Config().optim.lr
    assert main(["init", "new.toml"]) == 2
    assert "already exists" in capsys.readouterr().err


def test_check_shows_every_value_with_its_origin(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "run.toml", "--world", "4", "--batch.size", "64", "--batch.micro", "8"]) == 0
    printed = capsys.readouterr().out
    assert "size = 64  # --batch.size" in printed
    assert 'folder = "out"  # run.toml' in printed
    assert "64 samples = 4 ranks x 2 forwards x 8" in printed
    assert "parameters" in printed
    assert resolve("printed", [], {}, printed).config.batch.size == 64


def test_train_prepare_eval_and_generate_follow_each_other(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "run.toml", *TINY]) == 0
    assert "vocabulary: 257" in capsys.readouterr().out
    assert main(["train", "run.toml", *TINY, "--eval.sample_tokens", "8"]) == 0
    printed = capsys.readouterr().out
    assert "bits per byte" in printed
    assert "sample:" in printed
    assert main(["eval", "out", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    told = next(line for line in printed.splitlines() if line.startswith("validation:"))
    assert f"bits per byte {found['bits_per_byte']:.4f}" in told
    assert main(["generate", "out", "--prompt", "hello", "--tokens", "12", "--seed", "3"]) == 0
    first = capsys.readouterr().out
    assert first.startswith("hello")
    assert main(["generate", "out", "--prompt", "hello", "--tokens", "12", "--seed", "3"]) == 0
    assert capsys.readouterr().out == first
    assert main(["checkpoints", "ls", "out"]) == 0
    assert "6" in capsys.readouterr().out
    [description] = (here / "out" / "data").glob("*/data.json")
    description.write_text("{}")
    assert main(["eval", "out"]) == 1
    assert "data.json is damaged: it is not what was written" in capsys.readouterr().err


def test_a_stop_leaves_nothing_of_a_preparation(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asking_to_stop(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal comes first")

    monkeypatch.setattr("trainer.data.encode.write_splits", asking_to_stop)
    assert main(["prepare", "run.toml", *TINY]) == 75
    assert "error: stopped before the data was prepared" in capsys.readouterr().err
    assert not list((here / "out").rglob("*partial*"))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_embedded_default_is_a_valid_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    assert 'text = ["python:stdlib"]' in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("check"), cwd=tmp_path, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read()
    assert (process.returncode, told) == (0, "")


def test_tracebacks_only_on_request(tmp_path: Path) -> None:
    plain = trainer("check", "none.toml", cwd=tmp_path)
    assert plain.returncode == 2
    assert "Traceback" not in plain.stderr
    assert "Traceback" in trainer("check", "none.toml", "--traceback", cwd=tmp_path).stderr
