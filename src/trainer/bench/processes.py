"""A command with all processes that come of it: started in a session of its own, found by a mark, ended together."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MARK = "TRAINER_BENCH_RUN"
TAIL = 4000  # bytes of its output that are shown of a command that failed
END_SECONDS = 20.0


class Failed(Exception):
    """A command that ended otherwise than it should, or not at all; the message has the end of its output."""


class Ended(NamedTuple):
    """`cpu`: seconds of processor time of all its processes that were waited for by their parents."""

    status: int
    cpu: float
    output: str


class Running:
    """A command. `start`: time.monotonic_ns() just before it was started."""

    process: "subprocess.Popen[bytes]"
    start: int

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        # a file, not a pipe: nobody has to read it while the command runs
        self.output = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`

    def begin(self, folder: Path, environ: dict[str, str]) -> None:
        """Starts it."""
        name, _, value = self.mark.partition("=")
        before = os.times()
        self._cpu_before = before.children_user + before.children_system
        self.start = time.monotonic_ns()
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environ | {name: value},
            start_new_session=True,  # Linux shares processors out by session: the same for all
        )

    def pids(self) -> list[int]:
        """All processes that run the command or come of it, whoever is their parent by now."""
        found = []
        for entry in os.scandir("/proc"):
            if not entry.name.isdecimal():
                continue
            # gone meanwhile, or somebody else's
            with contextlib.suppress(OSError), open(f"/proc/{entry.name}/environ", "rb") as file:
                if self.mark.encode() in file.read().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def wait(self, limit: float) -> Ended:
        """Until it ends by itself. Failed after `limit` seconds."""
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"{' '.join(self.command)}: not done after {limit:g} s\n{self.told()}") from None
        after = os.times()
        return Ended(status, after.children_user + after.children_system - self._cpu_before, self.told())

    def told(self) -> str:
        """The end of what it has printed so far."""
        size = os.fstat(self.output.fileno()).st_size
        return os.pread(self.output.fileno(), TAIL, max(0, size - TAIL)).decode(errors="replace")

    def end(self) -> None:
        """Nothing of it is left when this returns, but what the kernel does not let go of."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])  # a second Ctrl-C waits
        try:
            if hasattr(self, "process"):
                self.process.kill()  # one that is only just being started has no environment to be found by
            deadline = time.monotonic() + END_SECONDS
            while (left := self.pids()) and time.monotonic() < deadline:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)
            if hasattr(self, "process"):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(END_SECONDS)
            self.output.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def running(command: list[str], folder: Path, environ: dict[str, str]) -> Iterator[Running]:
    """The started command; ended with all that comes of it however the block is left."""
    started = Running(command)
    try:
        started.begin(folder, environ)
        yield started
    finally:
        started.end()


def run(command: list[str], folder: Path, environ: dict[str, str], limit: float) -> tuple[Ended, int]:
    """From spawn to exit, and time.monotonic_ns() just before the spawn. Failed unless it ends with 0."""
    with running(command, folder, environ) as started:
        ended = started.wait(limit)
    if ended.status:
        raise Failed(f"{' '.join(command)} ended with {ended.status}\n{ended.output}")
    return ended, started.start
