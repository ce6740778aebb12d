"""What a start asks of the operating system, call by call: the command runs under strace until its first update.

The command becomes strace's, and stays the process that it was: the tracer is a grandchild, which each thread's calls
go to a file of. After the first update the tracer is sent away, and every rank reads its own.
"""

import atexit
import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from trainer.errors import UserError

# what a file system is asked: the first four are about names, a metadata server's work
KINDS = {
    "stat": ("newfstatat", "stat", "lstat", "statx", "access", "faccessat", "faccessat2"),
    "open": ("openat", "open", "openat2"),
    "getdents": ("getdents64", "getdents"),
    "readlink": ("readlink", "readlinkat"),
    "fstat": ("fstat",),
    "read": ("read", "pread64", "readv", "preadv"),
    "mmap": ("mmap",),
}
LOG = "TRAINER_CALLS_LOG"
FILE = "calls"
_CALL = re.compile(r"^(\w+)\(")
_KIND_OF = {call: kind for kind, calls in KINDS.items() for call in calls}


def trace(command: list[str]) -> None:
    """Does not come back: the process becomes `command`, traced. Comes back in the one that is. UserError."""
    if LOG in os.environ:
        atexit.register(_clear_own, os.getpid())
        return
    strace = shutil.which("strace")
    if strace is None:
        raise UserError("start.calls needs strace, which is not installed", "Install strace, or remove start.calls.", 2)
    folder = tempfile.mkdtemp(prefix="trainer-calls-")
    calls = ",".join(call for kind in KINDS.values() for call in kind)
    # -D: as a grandchild; -ff: a file a thread; -I1: it can be sent away; ?: not every machine has each call
    words = [strace, "-D", "-ff", "-qq", "-I1", "-e", f"trace={','.join('?' + call for call in calls.split(','))}"]
    words += ["-e", "signal=none", "-o", f"{folder}/{FILE}", *command]
    os.execve(strace, words, {**os.environ, LOG: f"{folder}/{FILE}"})


def stop() -> None:
    """The tracer leaves this process and those that were started with it: once all ranks want it."""
    for attempt in range(1000):
        tracer = _tracer()
        if not tracer:
            return
        if not attempt and Path(f"/proc/{tracer}/comm").read_text().strip() == "strace":
            with contextlib.suppress(ProcessLookupError):  # another rank was faster
                os.kill(tracer, signal.SIGTERM)
        time.sleep(0.01)


def counted(parent: bool = False) -> dict[str, int]:
    """Calls of this process until `stop`, by kind; `parent`: and those of the one that it was forked from."""
    log = os.environ[LOG]
    found = _count(log, [int(path.name) for path in Path("/proc/self/task").iterdir()])
    if parent:
        found += _count(log, [os.getppid()])
    return {kind: found[kind] for kind in KINDS}


def _tracer() -> int:
    """The process that traces this one; 0: none."""
    with open("/proc/self/status") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("TracerPid:")), 0)


def clear() -> None:
    """The logs have been read."""
    shutil.rmtree(Path(os.environ[LOG]).parent, ignore_errors=True)


def _clear_own(process: int) -> None:
    """At the end of the process that was started, not of those that were forked from it."""
    if os.getpid() == process:
        clear()


def _count(log: str, threads: list[int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for thread in threads:
        try:
            with open(f"{log}.{thread}", errors="replace") as file:
                calls = [match[1] for line in file if (match := _CALL.match(line))]
        except OSError:  # it has asked nothing yet
            continue
        found.update(_KIND_OF[call] for call in calls if call in _KIND_OF)
    return found
