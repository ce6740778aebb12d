"""What a rank leaves for whoever started it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer.errors import UserError
from trainer.launch import child, failure, scratch
from trainer.launch.detect import World

ALONE = World(0, 0, 1, 1, "none")
UNDER_TORCHRUN = World(1, 1, 2, 2, "torchrun")
UNDER_OURS = World(1, 1, 2, 2, "local")


def test_alone_there_is_nobody_to_tell(capfd: pytest.CaptureFixture[str]) -> None:
    child.start_child(ALONE)
    child.report_failure(ALONE, RuntimeError("x"))
    child.mark_done(ALONE)
    assert capfd.readouterr() == ("", "")
    assert child.prints_own_errors(ALONE)


def test_report_for_our_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_LAUNCH_DIR", str(tmp_path))
    child.report_failure(UNDER_OURS, UserError("wrong", "right", 2))
    told = failure.read(scratch.failure_file(tmp_path, 1))
    assert told is not None
    assert (told.rank, told.what, told.fix, told.status) == (1, "wrong", "right", 2)
    assert abs(time.time_ns() - told.time_ns) < 20e9
    assert not child.prints_own_errors(UNDER_OURS)


def test_report_that_cannot_be_written_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINER_LAUNCH_DIR", str(tmp_path / "gone"))
    child.report_failure(UNDER_OURS, RuntimeError("planned"))
    assert "error: rank 1: RuntimeError: planned\n" in capfd.readouterr().err


def test_report_for_torchrun_is_one_that_torch_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    child.report_failure(UNDER_TORCHRUN, UserError("wrong", "right"))
    seen = errors.ProcessFailure(local_rank=1, pid=4711, exitcode=1, error_file=str(path))
    assert abs(seen.timestamp - time.time()) < 20
    shown = str(errors.ChildFailedError("trainer", {1: seen}))
    assert "error: rank 1: wrong\n" in shown and "fix: right\n" in shown
    assert not child.prints_own_errors(UNDER_TORCHRUN)


def test_consequence_comes_after_its_cause_in_torchruns_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    before = int(time.time())
    child.report_failure(UNDER_TORCHRUN, RuntimeError("Connection closed by peer"))
    written = json.loads((tmp_path / "error.json").read_text())
    assert int(written["message"]["extraInfo"]["timestamp"]) > before


def test_torchrun_without_error_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    child.report_failure(UNDER_TORCHRUN, RuntimeError("x"))
    assert child.prints_own_errors(UNDER_TORCHRUN)


def test_meeting_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_LAUNCH_DIR", str(tmp_path))
    assert child.meeting_place(UNDER_OURS) == f"file://{tmp_path}/rendezvous"
    assert child.meeting_place(UNDER_TORCHRUN) == "env://"


@pytest.mark.parametrize("closed", ["", "sys.stdout.close();", "sys.stdout = None;", "os.close(1);"])
def test_leave_flushes_and_skips_the_rest(closed: str) -> None:
    code = (
        "import atexit, os, sys; from trainer.launch import child\n"
        f"atexit.register(print, 'never said'); sys.stdout.write('said'); {closed} child.leave(7)"
    )
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=environ)
    assert (done.returncode, done.stderr) == (7, "")
    assert "never said" not in done.stdout
    assert closed or done.stdout == "said"
