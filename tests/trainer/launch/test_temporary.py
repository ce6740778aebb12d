"""What loader workers leave behind when everything is killed: nothing, from the next start on."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.beds.runs import environ, flags, train_here
from trainer.launch import scratch

# the trainer, with its launch folders beside the other temporary files
PROGRAM = "from trainer.launch import scratch; scratch.BASES = ('TMPDIR',); from trainer.cli import main; main()"


def left(folder: Path) -> list[str]:
    """Names of temporary folders of this user that multiprocessing or a launch has made there."""
    return [path.name for path in folder.iterdir() if path.name.startswith(("pymp-", scratch.PREFIX))]


@pytest.mark.parametrize("nproc", ["1", "2"])
def test_killed_workers_leave_nothing(tmp_path: Path, nproc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Path(tempfile.mkdtemp(prefix="t-"))  # short: a socket's path is
    tree: list[int] = []
    try:
        monkeypatch.setattr(scratch, "BASES", ("TMPDIR",))
        monkeypatch.setenv("TMPDIR", str(base))
        (tmp_path / "run.toml").touch()
        words = flags(run__folder="run", run__steps="100000", data__workers="2", log__progress="none")
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "train", "run.toml", *words, "--nproc", nproc],
            cwd=tmp_path,
            env=environ(TMPDIR=str(base)),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        tree.append(process.pid)
        end = time.monotonic() + 60
        while time.monotonic() < end and not (tmp_path / "run" / "metrics.jsonl").exists():
            time.sleep(0.05)
        time.sleep(0.2)
        assert process.poll() is None, process.communicate()
        for pid in tree:
            listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=False)
            tree += map(int, listed.stdout.split())
        assert len(tree) >= 3
        for pid in tree:
            os.kill(pid, signal.SIGKILL)
        tree.clear()
        process.communicate(timeout=100)
        assert not any(name.startswith("pymp-") for name in left(base))
        assert train_here(tmp_path, data__workers="1", run__folder=str(tmp_path / "next")) == 0
        assert left(base) == []
    finally:
        for pid in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        scratch.remove(base)
