"""A command and all that comes of it."""

import os
import sys
from pathlib import Path

import pytest

from trainer.bench.processes import Failed, run, running

# a child in a session of its own, whose parent is gone at once
DETACHED = """
import os, sys, time
if os.fork():
    sys.exit(int(sys.argv[1]))
os.setsid()
open("pid", "w").write(str(os.getpid()))
time.sleep(600)
"""


def detached(status: int) -> list[str]:
    return [sys.executable, "-c", DETACHED, str(status)]


def gone(pid: int) -> bool:
    """Whether there is no such process, or only its end that its parent has not read."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return state.rpartition(")")[2].split()[0] in "ZX"


@pytest.mark.parametrize("status", [0, 1])
def test_nothing_is_left_of_a_command_that_has_ended(tmp_path: Path, status: int) -> None:
    with running(detached(status), tmp_path, dict(os.environ)) as started:
        assert started.wait(30).status == status
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            pass
        pid = int((tmp_path / "pid").read_text())
        assert started.pids() == [pid]
    assert gone(pid)


def test_nothing_is_left_of_a_command_that_is_interrupted(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        running([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path, dict(os.environ)) as started,
    ):
        raise KeyboardInterrupt
    assert gone(started.process.pid)


def test_a_failure_has_the_status_and_the_output(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('said'); sys.exit('told')"]
    with pytest.raises(Failed) as failed:
        run(command, tmp_path, dict(os.environ), 30)
    assert str(failed.value).splitlines()[0].endswith("ended with 1")
    assert {"said", "told"} <= set(str(failed.value).splitlines())


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"not done after 0\.2 s"):
        run([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path, dict(os.environ), 0.2)


def test_processor_time_is_that_of_all_that_it_waited_for(tmp_path: Path) -> None:
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    command = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"]
    assert run(command, tmp_path, dict(os.environ), 60)[0].cpu >= 0.3
