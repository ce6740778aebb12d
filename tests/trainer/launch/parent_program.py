"""Runs `run_ranks` as a program of its own: parent_program.py NPROC MAX_RESTARTS COMMAND..."""

import sys

from trainer.launch.local import run_ranks

GRACE_SECONDS = 0.4


def main() -> int:
    """Returns what `run_ranks` returns."""
    status = run_ranks(sys.argv[3:], int(sys.argv[1]), max_restarts=int(sys.argv[2]), grace=GRACE_SECONDS)
    assert "torch" not in sys.modules
    return status


if __name__ == "__main__":
    sys.exit(main())
