"""Ranks forked from a process that has imported what they need: they share its memory and begin in milliseconds, at
the first start and at every restart.

Safe by construction: the parent only imports. It computes nothing, so there is no pool of OpenMP threads that a child
would wait for; it never touches a device, so CUDA begins in the child; and it forks only while it has a single thread.
Where an import has started threads, ranks are started as processes of their own, and say why.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from trainer import startup
from trainer.launch.detect import RESTARTS
from trainer.launch.signals import Signals
from trainer.launch.starting import Starter
from trainer.launch.stop import SIGNALS
from trainer.leaving import exit_status, leave_tidily

NOT_FORKED = "TRAINER_NOT_FORKED"
PR_SET_NAME = 15
# numpy's library would start a thread a core when it is loaded
ONE_THREAD = "OPENBLAS_NUM_THREADS"


class Forker:
    """`load` imports what the ranks need, in this process; `rank` is the whole life of a rank, in the forked one, and
    returns its exit status; `otherwise` starts ranks where forking is not safe."""

    def __init__(self, load: Callable[[], None], rank: Callable[[], int], otherwise: Starter) -> None:
        self._load = load
        self._rank = rank
        self._otherwise = otherwise

    def ready(self, environ: dict[str, str]) -> None:
        """Imports, in the environment that the ranks will have: libraries read it when they are loaded."""
        wanted = {ONE_THREAD: "1"} | environ
        before = {name: os.environ.get(name) for name, value in wanted.items() if os.environ.get(name) != value}
        os.environ.update({name: wanted[name] for name in before})
        try:
            self._load()
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def start(self, environ: dict[str, str], signals: Signals) -> int:
        """Forks a rank."""
        why = why_not_safe()
        if why:
            return self._otherwise.start(environ | {NOT_FORKED: why}, signals)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None without a descriptor
                stream.flush()  # what is buffered would be written twice
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pid = os.fork()
        if pid == 0:
            self._live(environ, signals)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return pid

    def _live(self, environ: dict[str, str], signals: Signals) -> NoReturn:
        """A rank from its fork to its end; nothing of the parent's stack is ever returned to."""
        status = 1
        try:
            become_rank(environ, signals)
            status = self._rank()
        except SystemExit as leaving:
            status = exit_status(leaving)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            leave_tidily(status)
        raise AssertionError  # not reached


def become_rank(environ: dict[str, str], signals: Signals) -> None:
    """Makes a forked process what a started one would be: session, signals, standard input, environment, name and
    random numbers of its own."""
    os.setsid()
    signals.leave_to_parent()
    nothing = os.open(os.devnull, os.O_RDONLY)
    if nothing:  # else it was closed, and now is this
        os.dup2(nothing, 0)
        os.close(nothing)
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)
    startup.forked(restarted=environ[RESTARTS] != "0")
    _name(f"rank {environ['RANK']}")
    if "random" in sys.modules:
        import random

        random.seed()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def why_not_safe() -> str:
    """Why this process may not be forked: it has other threads, or the kernel does not tell; "" where it may."""
    own = str(os.getpid())
    try:
        tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != own]
        names = [(task / "comm").read_text(errors="replace").strip() for task in tasks]
    except OSError as error:
        return f"the threads of this process can't be counted (/proc: {error.strerror})"
    if not names:
        return ""
    return f"importing has started {len(names)} thread{'s' if len(names) > 1 else ''} ({names[0]})"


def _name(name: str) -> None:
    """What `top` and `ps -o comm` show."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
