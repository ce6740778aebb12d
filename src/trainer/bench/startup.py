"""The comparison that `trainer bench startup` makes."""

import platform
import socket
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trainer.bench.contenders import Bed, Contender, own, spawned, torchrun
from trainer.bench.figures import table
from trainer.bench.rounds import Tell, measure
from trainer.startup import entry_command


def contenders(nproc: int, every: bool) -> dict[str, Contender]:
    """The hand-written script first, then this trainer; with `every` layer put on one after the other."""
    if nproc == 1:
        found = {"hand-written script": Contender(spawned(1, "one_process.py"))}
    else:
        found = {
            "hand-written script": Contender(spawned(nproc, "ddp.py")),
            "the script by torchrun": Contender(torchrun(nproc, "ddp.py")),
        }
    return found | own(entry_command(), nproc, every)


def measured(folder: Path, nproc: int, rounds: int, every: bool, tell: Tell) -> dict[str, Any]:
    """Keys: host, python, torch, nproc, rounds, contenders (rows of rounds.measure). Failed, Differs."""
    bed = Bed(folder)
    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "nproc": nproc,
        "rounds": rounds,
        "contenders": measure(bed, contenders(nproc, every), rounds, tell),
    }


def lines(result: dict[str, Any]) -> list[str]:
    """The table, and what it is of."""
    ranks = "one process" if result["nproc"] == 1 else f"{result['nproc']} ranks"
    title = f"time to the first update, {ranks}, torch {result['torch']}, median of {result['rounds']}"
    return [*table(title, result["contenders"]), "the losses of all are the same, bit for bit"]
