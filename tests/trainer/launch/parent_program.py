"""Runs `run_ranks` as a program of its own: parent_program.py spawn|fork|load NPROC MAX_RESTARTS COMMAND...

The command is Python, a program's path and its arguments. To fork, the program is run in the forked process, after
its parent has imported torch if it is to load.
"""

import runpy
import sys

from trainer.launch.forking import Forker
from trainer.launch.local import run_ranks
from trainer.launch.starting import Spawner

GRACE_SECONDS = 0.4


def main() -> int:
    """Returns what `run_ranks` returns."""
    how, nproc, restarts, *command = sys.argv[1:]
    spawner = Spawner(command)

    def rank() -> int:
        sys.argv[:] = command[1:]
        runpy.run_path(command[1], run_name="__main__")
        return 0

    def load() -> None:
        if how == "load":
            import torch.distributed  # noqa: F401  # for the ranks

    starter = spawner if how == "spawn" else Forker(load, rank, spawner)
    status = run_ranks(starter, int(nproc), max_restarts=int(restarts), grace=GRACE_SECONDS)
    assert how == "load" or "torch" not in sys.modules
    return status


if __name__ == "__main__":
    sys.exit(main())
