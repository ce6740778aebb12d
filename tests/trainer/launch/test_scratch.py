"""The launch folder goes with its last user, and not before."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer.errors import UserError
from trainer.launch import scratch

USER = """
import sys
from pathlib import Path
from trainer.launch import scratch
attempt = Path(sys.argv[1])
scratch.join(attempt)
print("joined", flush=True)
sys.stdin.read()
scratch.remove_if_last(attempt)
"""


@contextmanager
def user_of(attempt: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that uses the folder until its standard input is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", USER, str(attempt)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "joined\n"
        yield process
        process.stdin.close()
        assert process.wait(20) == 0


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for launch folders that no other launch on this machine looks at."""
    monkeypatch.setattr(scratch, "BASES", (str(tmp_path),))
    return tmp_path


def test_removed_with_all_that_is_in_it(base: Path) -> None:
    with scratch.Scratch() as folder:
        for number in (0, 1):
            attempt = folder.attempt(number)
            scratch.done_file(attempt, number).touch()
            (attempt / "link").symlink_to(base)
            (attempt / "deeper").mkdir()
        assert [path.name[: len(scratch.PREFIX)] for path in base.iterdir()] == [scratch.PREFIX]
    assert list(base.iterdir()) == []


def test_what_killed_launches_left_is_swept(base: Path) -> None:
    stale = base / f"{scratch.PREFIX}0123"
    (stale / "attempt-0").mkdir(parents=True)
    (stale / scratch.USERS).touch()
    unfinished = base / f"{scratch.PREFIX}4567"
    unfinished.mkdir()
    foreign = base / "something-else"
    foreign.mkdir()
    with scratch.Scratch():
        assert not stale.exists()
    assert sorted(base.iterdir()) == sorted([unfinished, foreign])


def test_what_another_launch_uses_is_not_swept(base: Path) -> None:
    attempt = base / f"{scratch.PREFIX}0123" / "attempt-0"
    attempt.mkdir(parents=True)
    (attempt.parent / scratch.USERS).touch()
    with user_of(attempt), scratch.Scratch():
        assert attempt.exists()


def test_the_last_user_removes_it(base: Path) -> None:
    attempt = base / f"{scratch.PREFIX}0123" / "attempt-0"
    attempt.mkdir(parents=True)
    (attempt.parent / scratch.USERS).touch()
    with user_of(attempt):
        with user_of(attempt):
            pass
        assert attempt.exists()
    assert list(base.iterdir()) == []


def test_removing_what_is_gone_is_no_error(base: Path) -> None:
    scratch.remove(base / "nothing")
    scratch.remove_if_last(base / "nothing" / "attempt-0")


def test_next_place_when_one_is_full_or_missing(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "BASES", ("/proc", str(base / "missing"), str(base)))
    with scratch.Scratch() as folder:
        assert folder.path.parent == base


def test_tmpdir_is_tried_before_the_general_folders(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "BASES", ("TMPDIR", "/nowhere"))
    monkeypatch.setenv("TMPDIR", str(base))
    with scratch.Scratch() as folder:
        assert folder.path.parent == base


def test_no_place_at_all(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "BASES", (str(base / "missing"), os.devnull))
    with pytest.raises(UserError, match="no temporary folder has room") as caught, scratch.Scratch():
        pass
    assert "TMPDIR" in caught.value.fix
