"""Goes on in the stored environment that fits, where the interpreter that was started lacks what a run needs."""

from __future__ import annotations

import os
import sys
import time

from trainer_boot import interpreter
from trainer_boot.environment.refused import Refused
from trainer_boot.environment.store import Store, read_manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.environment.carried import Carried

OFF = "TRAINER_ENV_ENTER"
TRIES = 20


def enter(carried: Carried, lacking: str) -> None:
    """Replaces this process by the same command under the environment's Python; returns where no environment fits.
    Refused where one fits and can't be used. `lacking`: the package that is not there, for messages."""
    if os.environ.get(OFF) == "0":
        return
    if read_manifest(sys.prefix) is not None:
        raise Refused(
            f"the environment {sys.prefix} has no {lacking}: it is damaged", "Repair it with `env create --repair`."
        )
    for _ in range(TRIES):
        stored = Store().fitting(carried)
        if stored is None:
            return
        if stored.hold() is not None:
            break
        time.sleep(0.1)  # it is being thrown away just now
    else:
        raise Refused("the matching environment is being removed", "Create it again with `env create`.")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "__PYVENV_LAUNCHER__")}
    try:
        os.execve(stored.python, interpreter.again(stored.python), environ)
    except OSError as error:
        raise Refused(
            f"{stored.python} does not start: {error.strerror}", "Repair it with `env create --repair`."
        ) from None
