"""Where the ranks of a program of the user's own meet: a store at MASTER_ADDR and MASTER_PORT, as torchrun gives them.

The store of forked ranks is a process of its own, forked from the parent like them, so that the kernel can choose the
port and there is none to race for. Each generation of ranks has its own: in an old one, torch would find the addresses
of ranks that are gone. Ranks that are processes of their own get a free
port, at which rank 0 opens the store.
"""

import contextlib
import os
import signal
import socket
import sys
from typing import NoReturn

from trainer.errors import UserError
from trainer.launch.child import die_with_parent
from trainer.launch.detect import RESTARTS
from trainer.launch.forking import why_not_safe
from trainer.launch.signals import Signals
from trainer.launch.starting import Starter
from trainer.launch.stop import SIGNALS

STORE = "TRAINER_STORE"
HOST = "127.0.0.1"


class Meeting:
    """A starter whose ranks find in their environment where to meet. `served`: the store is a process forked from this
    one, which ends with the context; unless this one has threads."""

    def __init__(self, starter: Starter, served: bool) -> None:
        self._starter = starter
        self._served = served
        self._port = 0
        self._process = 0

    def __enter__(self) -> "Meeting":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
            self._process = 0

    def ready(self, environ: dict[str, str]) -> None:
        """Readies the starter."""
        self._starter.ready(environ)

    def start(self, environ: dict[str, str], signals: Signals) -> int:
        """Starts a rank; with rank 0 a generation begins, and its store."""
        if environ["RANK"] == "0":
            self.__exit__()
            if self._served and not why_not_safe():
                self._process, self._port = _serve(signals)
            else:
                self._port = _free_port()
        return self._starter.start(environ | {STORE: f"{self._port}{' served' if self._process else ''}"}, signals)


def publish(max_restarts: int) -> None:
    """In a rank: the environment that torchrun would have given it."""
    port, _, served = os.environ.pop(STORE).partition(" ")
    os.environ.update(
        MASTER_ADDR=HOST,
        MASTER_PORT=port,
        GROUP_RANK="0",
        GROUP_WORLD_SIZE="1",
        ROLE_NAME="default",
        ROLE_RANK=os.environ["RANK"],
        ROLE_WORLD_SIZE=os.environ["WORLD_SIZE"],
        TORCHELASTIC_RESTART_COUNT=os.environ[RESTARTS],
        TORCHELASTIC_MAX_RESTARTS=str(max_restarts),
        TORCHELASTIC_RUN_ID=f"trainer-{os.getppid()}",
        TORCHELASTIC_USE_AGENT_STORE=str(bool(served)),
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _serve(signals: Signals) -> tuple[int, int]:
    """Forks the process that holds the store; its number and the port. torch must be imported."""
    parent = os.getpid()
    read, write = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    process = os.fork()
    if process == 0:
        _hold(parent, write, signals)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(write)
    with open(read, "rb") as answer:
        port = answer.read()
    if not port:
        os.waitpid(process, 0)
        raise UserError("the store where the ranks meet could not be opened", "See the reason above.")
    return process, int(port)


def _hold(parent: int, write: int, signals: Signals) -> NoReturn:
    """The life of that process, which only its parent ends."""
    try:
        os.setsid()
        signals.leave_to_parent()
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but not in its __all__

        store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        os.write(write, str(store.port).encode())
        os.close(write)
        while True:
            signal.pause()
    except BaseException as error:
        with contextlib.suppress(OSError, ValueError):
            print(f"store: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)
