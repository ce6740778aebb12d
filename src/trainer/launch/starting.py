"""How the ranks of a run on this machine come to be: processes of their own, or forked from one."""

import os
import signal
from typing import Protocol

from trainer.errors import UserError
from trainer.launch.signals import Signals
from trainer.launch.stop import SIGNALS


class Starter(Protocol):
    """Makes ranks, time after time. A rank leads a session of its own (Ctrl-C at the terminal reaches only the parent),
    has no terminal to read from, and holds stop signals back until it is ready for them."""

    def ready(self, environ: dict[str, str]) -> None:
        """What is done once, before the first rank. `environ`: what all of them will have."""

    def start(self, environ: dict[str, str], signals: Signals) -> int:
        """Starts a rank with exactly this environment and returns its process number. `signals`: of the parent."""


class Spawner:
    """Ranks that are processes of their own: `command`, each time."""

    def __init__(self, command: list[str]) -> None:
        self.command = command

    def ready(self, environ: dict[str, str]) -> None:
        """Nothing."""

    def start(self, environ: dict[str, str], signals: Signals) -> int:
        """UserError where the command can't be started."""
        try:
            return os.posix_spawnp(
                self.command[0],
                self.command,
                environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
                setsid=True,
                setsigmask=SIGNALS,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # ignored by Python, not by what it starts
            )
        except OSError as error:
            what = f"cannot start a rank with {self.command[0]}: {error.strerror}"
            raise UserError(
                what, "Check that it exists and is executable, and the limit on processes (`ulimit -u`)."
            ) from error
