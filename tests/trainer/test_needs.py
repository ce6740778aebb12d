"""An environment that lacks what a command needs."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.beds.runs import ROOT
from trainer.errors import UserError
from trainer.needs import need


def test_what_is_there_is_not_asked_for() -> None:
    need("json", "torch", "numpy")


def test_what_is_missing_is_named_with_the_fix() -> None:
    with pytest.raises(UserError, match="has no no_such_package") as caught:
        need("json", "no_such_package")
    assert caught.value.status == 3
    assert "uv sync" in caught.value.fix


@pytest.mark.parametrize("words", [["train"], ["train", "--nproc", "2"], ["train", "--nproc", "1"]])
def test_training_without_torch_ends_with_status_3(tmp_path: Path, words: list[str]) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    done = subprocess.run(
        [str(tmp_path / "bare" / "bin" / "python"), "-m", "trainer", *words],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert f"{sys.executable}" not in done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["error", "fix"]
