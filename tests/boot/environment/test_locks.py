"""Locks end with their process; in use is what somebody holds."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.boot.environment.test_store import stored
from trainer_boot.environment import locks
from trainer_boot.environment.pruning import prune
from trainer_boot.environment.store import Store

HOLDER = """
import sys
sys.path.insert(0, {source!r})
from trainer_boot.environment.locks import Lock
with Lock({path!r}, print):
    print("held", flush=True)
    sys.stdin.read()
"""
SOURCE = str(Path(__file__).resolve().parents[3] / "src")


def test_one_that_was_killed_holds_none(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    text = HOLDER.format(source=SOURCE, path=path)
    process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    told: list[str] = []

    def waiting(who: str) -> None:
        told.append(who)
        process.kill()

    with locks.Lock(path, waiting):
        assert told == [f"process {process.pid} on {os.uname().nodename}"]
    process.communicate()


def test_where_there_are_no_locks_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locks.Lock(str(tmp_path / "lock"), lambda who: pytest.fail("waited")):
        pass


def test_what_is_held_is_kept(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.make()
    stored(store, "old")
    found = store.get("old")
    assert found is not None
    descriptor = found.hold()
    assert descriptor is not None
    assert os.get_inheritable(descriptor)
    assert prune(store, 1).kept == [("old", "in use")]
    os.close(descriptor)
    assert [name for name, _ in prune(store, 1, dry=True).removed] == ["old"]
    assert [name for name, _ in prune(store, 1).removed] == ["old"]
    assert found.hold() is None
    assert list(Path(store.environments).iterdir()) == []


def test_what_was_asked_for_is_kept(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.make()
    stored(store, "old")
    assert prune(store, 1, keep=["old"]).kept == [("old", "asked for")]
