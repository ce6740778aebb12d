"""`trainer env check`: what it prints, and with which exit status."""

import json
import subprocess
import sys

import pytest

from trainer import cli, startup
from trainer.commands import env
from trainer.errors import UserError
from trainer_boot.environment.comparing import Verdict
from trainer_boot.environment.problems import Problem


def pretend(monkeypatch: pytest.MonkeyPatch, *problems: Problem) -> None:
    verdict = Verdict("", (), list(problems), 2, False)
    monkeypatch.setattr(startup, "check_environment", lambda *arguments: verdict)


def test_without_a_lock_inside_there_is_nothing_to_compare(capsys: pytest.CaptureFixture[str]) -> None:
    assert env.run(["check"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "no lock inside" in line
    assert "trainer.pyz env check" in line


def test_an_environment_that_fits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pretend(monkeypatch, Problem("torch", "1", "1+cpu", "torch 1+cpu is taken for 1", "", fatal=False))
    assert env.run(["check"]) == 0
    note, verdict = capsys.readouterr().out.splitlines()
    assert note == "note: torch 1+cpu is taken for 1"
    assert "fits" in verdict


def test_differences_are_printed_with_their_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(
        monkeypatch,
        Problem("numpy", "2", "1", "numpy 1 is installed, 2 is locked", "run pip install numpy==2"),
        Problem("torch", "2", None, "torch 2 is locked, and no torch is installed", "run pip install torch==2"),
    )
    assert env.run(["check"]) == 3
    printed = capsys.readouterr()
    assert "2 differences from the lock" in printed.out
    assert "env create" in printed.out
    assert printed.err.splitlines() == [
        "error: numpy 1 is installed, 2 is locked",
        "fix: run pip install numpy==2",
        "error: torch 2 is locked, and no torch is installed",
        "fix: run pip install torch==2",
    ]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["chek"], "no such command"),
        (["check", "more"], "too many arguments"),
        (["check", "--repair"], "unknown flag --repair"),
        (["use"], "needs the name of an environment"),
        (["prune", "--keep", "0"], "no lock inside"),
    ],
)
def test_wrong_usage_is_named(arguments: list[str], what: str) -> None:
    with pytest.raises(UserError, match=what) as caught:
        env.run(arguments)
    assert caught.value.status == 2
    assert caught.value.fix


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["env", "--help"]) == 0
    assert "example" in capsys.readouterr().out


def test_it_needs_no_torch() -> None:
    script = "import sys; from trainer.cli import main; main(['env', 'check']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_for_programs_it_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem("numpy", "2", "1", "numpy 1 is installed, 2 is locked", "run pip install numpy==2")
    pretend(monkeypatch, problem)
    assert env.run(["check", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] is False
    assert found["differences"] == [problem.as_json()]


def test_a_checkout_makes_no_environments() -> None:
    with pytest.raises(UserError, match="no lock inside") as caught:
        env.run(["create"])
    assert "uv sync" in caught.value.fix
