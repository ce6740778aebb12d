"""`trainer bench startup`: what the fast start saves on this machine, measured beside a hand-written script."""

import os
import sys
from pathlib import Path

from trainer.arguments import split, whole
from trainer.errors import UserError

HELP = """usage: trainer bench startup [--nproc N] [--rounds N] [--layers] [--json FILE]

Time from the start of a process to the end of its first update, of one small model: by a hand-written script with
nothing of the trainer in it, and by `trainer train` without and with its layers of a fast start. All are run in turn,
round after round; the table has medians, quartiles and ratios to the script. The losses of all must be the same, bit
for bit. Works in a temporary folder ($TMPDIR) and leaves nothing.

  --nproc N      ranks on this machine (default 1): DDP over Gloo, the script also by torchrun
  --rounds N     measured rounds, after one that warms up (default 5)
  --layers       also with the layers put on one after the other: what each is worth here
  --json FILE    writes the figures too

examples:
  trainer bench startup
  trainer bench startup --nproc 8 --rounds 3 --json startup.json

exit status: 0 measured; 2 wrong usage; 3 no torch here; 1 other errors; 130 Ctrl-C"""

ROUNDS = 5
BATCH = 8  # of the small model: each rank has an equal share


def run(arguments: list[str]) -> int:
    """Measures; the table goes to standard output, progress to standard error."""
    if not arguments or "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0 if arguments else 2
    if arguments[0] != "startup":
        raise UserError(f"no such benchmark: {arguments[0]}", "Run `trainer bench startup`.", 2)
    given = split(arguments[1:], {"nproc": True, "rounds": True, "layers": False, "json": True}, 0, "bench")
    if given.settings:
        raise UserError(f"bench takes no settings (--{given.settings[0][0]})", "See `trainer bench --help`.", 2)
    nproc = whole(given.flags, "nproc", 1, 1)
    rounds = whole(given.flags, "rounds", ROUNDS, 1)
    if BATCH % nproc:
        raise UserError(
            f"--nproc {nproc}: the measured batch of {BATCH} samples cannot be split evenly",
            "Set --nproc to 1, 2, 4 or 8.",
            2,
        )
    from trainer.needs import need

    need("torch", "numpy")
    return _measure(nproc, rounds, "layers" in given.flags, given.flags.get("json"))


def _measure(nproc: int, rounds: int, every: bool, target: str | None) -> int:
    import json
    import signal
    import tempfile

    from trainer.bench import startup
    from trainer.bench.processes import Failed
    from trainer.bench.rounds import Differs

    if target is not None:
        _require_writable(Path(target))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleans up as Ctrl-C does
    try:
        with tempfile.TemporaryDirectory(prefix="trainer-bench-") as folder:
            result = startup.measured(Path(folder), nproc, rounds, every, _tell)
    except Failed as error:
        what, _, output = str(error).partition("\n")
        print(output, file=sys.stderr)
        raise UserError(what, "See its output above.") from None
    except Differs as error:
        raise UserError(
            str(error), "Report this as a bug: the layers of the fast start must change nothing but time."
        ) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    print("\n".join(startup.lines(result)))
    if target is not None:
        Path(target).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def _require_writable(path: Path) -> None:
    """Before minutes of measuring."""
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"--json: {path} cannot be written", "Name a file in a folder that exists.", 2)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
