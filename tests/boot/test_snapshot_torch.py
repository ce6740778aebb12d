"""The import snapshot with the installed torch: a step from it gives the same bits as one from files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from trainer import startup
from trainer.commands import env, env_snapshot
from trainer.errors import UserError
from trainer_boot.layers import Note

ROOT = Path(__file__).parent.parent.parent

STEP = """
    import json
    from trainer_boot import snapshot
    note = snapshot.serve()
    snapshot.note_texts()
    import torch
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(3):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
    made = snapshot.record_if_missing(100)["made"]
    print(json.dumps({"note": note, "losses": losses, "made": made, "report": snapshot.report()}))
    """


def step(cache: Path) -> dict[str, Any]:
    variables = {**os.environ, "TRAINER_SNAPSHOT_DIR": str(cache), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", dedent(STEP)], env=variables, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_step_of_torch_from_the_snapshot_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    plain = step(tmp_path)
    assert (plain["note"]["state"], plain["made"]) == ("aside", True)
    served = step(tmp_path)
    assert (served["note"]["state"], served["made"]) == ("on", False)
    assert served["losses"] == plain["losses"]
    assert served["report"]["served"] > 500
    assert served["report"]["damaged"] == []


def test_the_command_makes_one_that_a_run_is_served_from(tmp_path: Path) -> None:
    variables = {**os.environ, "TRAINER_SNAPSHOT_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}

    def command() -> str:
        words = [sys.executable, "-m", "trainer", "env", "snapshot"]
        done = subprocess.run(
            words, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = command()
    assert int(first.split()[1]) > 1000
    assert command() == f"up to date: {first}"
    served = step(tmp_path / "cache")
    assert (served["note"]["state"], served["made"]) == ("on", False)
    assert served["report"]["served"] > 500


class Notes:
    """What the layer says, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *notes: Note) -> None:
        self.left = list(notes)
        self.trained = False
        monkeypatch.setattr(startup, "put_on", lambda names, check: [{"layer": "snapshot", **self.left.pop(0)}])
        monkeypatch.setattr(startup, "record_snapshot", lambda patient: {"why": "full disk" if patient else "no time"})
        monkeypatch.setattr(env_snapshot, "_wrap_for_ranks", lambda folder: None)
        monkeypatch.setattr(env_snapshot, "_train_a_little", self.train)

    def train(self, folder: Path) -> None:
        self.trained = True


def on(path: Path, modules: int = 700) -> Note:
    return {"state": "on", "path": str(path), "modules": modules, "bytes": 3 << 20, "why": ""}


def aside(path: Path) -> Note:
    return {"state": "aside", "path": str(path), "why": "there is none yet"}


def test_the_command_makes_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = Notes(monkeypatch, aside(tmp_path / "x"), on(tmp_path / "x"))
    assert env.run(["snapshot"]) == 0
    assert notes.trained
    assert capsys.readouterr().out == f"{tmp_path / 'x'}: 700 modules, 3 MiB\n"


def test_the_command_leaves_what_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = Notes(monkeypatch, on(tmp_path / "x"))
    assert env.run(["snapshot"]) == 0
    assert not notes.trained
    assert capsys.readouterr().out.startswith("up to date")


def test_force_makes_it_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "x"
    place.touch()
    notes = Notes(monkeypatch, on(place), aside(place), on(place))
    assert env.run(["snapshot", "--force"]) == 0
    assert notes.trained
    assert not place.exists()


def test_the_command_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Notes(monkeypatch, aside(tmp_path / "x"), aside(tmp_path / "x"))
    with pytest.raises(UserError, match="full disk"):
        env.run(["snapshot"])
    with pytest.raises(UserError, match="unknown flag"):
        env.run(["snapshot", "--fast"])
