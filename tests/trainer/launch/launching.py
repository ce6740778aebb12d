"""Starts launches as real processes and looks at what they leave behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
PATIENCE_SECONDS = 60.0


class Launch:
    """A parent with its ranks, whose files lie in `folder`."""

    def __init__(
        self,
        folder: Path,
        plan: dict[str, str],
        *,
        nproc: int = 2,
        max_restarts: int = 0,
        prefix: tuple[str, ...] = (),
        environ: dict[str, str] | None = None,
        how: str = "spawn",
    ) -> None:
        self.folder = folder
        rank = [sys.executable, str(HERE / "rank_program.py"), str(folder), json.dumps(plan)]
        parent = [sys.executable, str(HERE / "parent_program.py"), how, str(nproc), str(max_restarts)]
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [*prefix, *parent, *rank],
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, *names: str) -> None:
        """Returns when all these files are there."""
        wait_until(lambda: all((self.folder / name).exists() for name in names))

    def end(self) -> tuple[int, str]:
        """Exit status and output; then nothing of the launch may be left."""
        output, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        self.check_nothing_left()
        return self.process.returncode, output

    def abandon(self) -> None:
        """Ends what a failed test has left running."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            self.process.send_signal(signal.SIGINT)  # the second one ends all
            time.sleep(0.1)
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_SECONDS)

    def check_nothing_left(self) -> None:
        """No process and no launch folder."""
        for file in [*self.folder.glob("pid-*"), *self.folder.glob("worker-*"), *self.folder.glob("starting-*")]:
            wait_until(partial(_is_gone, int(file.read_text())))
        where = self.folder / "launch-folder"
        if where.exists():
            assert not Path(where.read_text()).parent.exists()


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Returns once `condition` holds; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether the process exists and is more than a zombie that its new parent has not collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _is_gone(pid: int) -> bool:
    return not is_alive(pid)


def last_error(output: str) -> str:
    """The one `error:` line of the output, which nothing but its fix may follow."""
    lines = output.strip().splitlines()
    errors = [line for line in lines if line.startswith("error:")]
    assert len(errors) == 1, output
    rest = lines[lines.index(errors[0]) + 1 :]
    assert [line for line in rest if not line.startswith("fix:")] == [] and len(rest) <= 1, output
    return errors[0]
