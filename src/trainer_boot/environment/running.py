"""Runs an installer: its progress goes to the user's terminal, what it said last is kept, and it ends when we do."""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import time
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Say = Callable[[str], None]

PR_SET_PDEATHSIG = 1
KEPT = 1 << 16
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_SECONDS = 5.0
BEAT_SECONDS = 10
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
# variables that would make an installer choose or place something else than what is locked
FOREIGN = (
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONPLATLIBDIR", "UV_PYTHON",
    "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "UV_WORKING_DIRECTORY", "UV_CONSTRAINT", "UV_BUILD_CONSTRAINT",
    "UV_OVERRIDE", "UV_EXCLUDE", "UV_NO_BINARY", "UV_ONLY_BINARY", "UV_NO_BINARY_PACKAGE", "UV_EXCLUDE_NEWER",
    "UV_PRERELEASE", "UV_RESOLUTION", "UV_SYSTEM_PYTHON", "UV_BREAK_SYSTEM_PACKAGES", "UV_NO_VERIFY_HASHES",
    "UV_COMPILE_BYTECODE", "UV_TORCH_BACKEND", "UV_VENV_CLEAR", "UV_VENV_SEED", "UV_VENV_RELOCATABLE",
    "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_CONSTRAINT", "PIP_REQUIREMENT", "PIP_NO_BINARY", "PIP_ONLY_BINARY",
    "PIP_PLATFORM", "PIP_PYTHON_VERSION", "PIP_NO_DEPS", "PIP_ROOT",
)  # fmt: skip

_end_with_parent = ctypes.CDLL(None).prctl


def environment(**more: str) -> dict[str, str]:
    """This process's variables, without those that change what is installed."""
    return {name: value for name, value in os.environ.items() if name not in FOREIGN} | more


def run(
    command: Sequence[str], folder: str, variables: Mapping[str, str], say: Say | None = None, beat: Say | None = None
) -> tuple[int, str]:
    """Runs it in `folder` to its end; status, and the last of what it printed. OSError where it does not start.

    On a terminal its output is shown as it draws it; elsewhere `say` gets each line, if it is given. `beat` is told now
    and then that it is still at it. Whatever ends this function ends the command, and so does the end of this process.
    """
    terminal = say is not None and sys.stderr.isatty()
    ours, theirs = os.openpty() if terminal else os.pipe()
    # a handler that raises among what Python does at a fork would be ignored there, and the signal lost
    held = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=partial(_before, held),
        )
    except BaseException:
        os.close(ours)
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        raise
    finally:
        os.close(theirs)
    kept = b""
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        with open(ours, "rb", buffering=0) as stream:
            rest = b""
            for piece in _pieces(stream.fileno(), None if terminal else beat):
                kept = (kept + piece)[-KEPT:]
                if terminal:
                    os.write(2, piece)
                elif say is not None:
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        say(line.decode(errors="replace").rstrip())
        return process.wait(), ESCAPES.sub("", kept.decode(errors="replace"))
    except BaseException:
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def _pieces(descriptor: int, beat: Say | None) -> Iterator[bytes]:
    began = time.monotonic()
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    while True:
        while not waiting.poll(BEAT_SECONDS * 1000):
            if beat is not None:
                beat(f"still at it, {time.monotonic() - began:.0f} s")
        try:
            piece = os.read(descriptor, 1 << 14)
        except OSError:  # a terminal whose other side is closed
            return
        if not piece:
            return
        yield piece


def _before(held: Iterable[int]) -> None:
    """In the child: dies with its parent, even one that was killed."""
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    _end_with_parent(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
