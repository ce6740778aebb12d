"""Time to an answer that needs no torch: the file against other ways to ship the same code, in units of bare Python."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.startup_packages import Package, packages
from trainer.bench.figures import Row, compared, table
from trainer.bench.rounds import Tell, turns

WRONG = "[optim]\nlearning_rat = 0.1\n"
PASS = "python -c pass"
# name -> (title, arguments, exit status)
FLOWS: dict[str, tuple[str, list[str], int]] = {
    "version": ("--version", ["--version"], 0),
    "help": ("--help", ["--help"], 0),
    "wrong": ("wrong run file", ["check", "WRONG"], 2),
}


def contenders(pyz: Path, folder: Path) -> dict[str, Package]:
    """Name -> package; the file first."""
    return {"trainer.pyz": Package([sys.executable, str(pyz)])} | packages(pyz, folder)


def milliseconds(package: Package, words: list[str], status: int) -> float:
    """One run, from spawn to exit."""
    command = [*package.command, *words]
    environ = os.environ | dict(package.environ)
    start = time.perf_counter()
    # in a session of its own, as everything that is compared: Linux shares processors out by session
    done = subprocess.run(command, capture_output=True, check=False, cwd="/", env=environ, start_new_session=True)
    taken = 1000 * (time.perf_counter() - start)
    if done.returncode != status:
        raise SystemExit(f"error: {' '.join(command)} ended with {done.returncode}\n{done.stderr.decode()}")
    return taken


def measure(pyz: Path, flows: list[str], rounds: int, tell: Tell) -> dict[str, dict[str, Row]]:
    """{title of a flow: {contender: row, in milliseconds}}; the first contender of each is `python -c pass`."""
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        folder = Path(name)
        wrong = folder / "wrong.toml"
        wrong.write_text(WRONG)
        tell("answers: making the packages")
        all_of = contenders(pyz, folder)
        bare = Package([sys.executable])
        found = {}
        for title, words, status in (FLOWS[flow] for flow in flows):
            words = [str(wrong) if word == "WRONG" else word for word in words]
            taken: dict[str, list[float]] = {PASS: [], **{contender: [] for contender in all_of}}
            skipped = {contender: package.lacks for contender, package in all_of.items() if package.lacks}
            for number, contender in turns(list(taken), rounds):
                if contender in skipped:
                    continue
                if contender == PASS:
                    value = milliseconds(bare, ["-c", "pass"], 0)
                else:
                    value = milliseconds(all_of[contender], words, status)
                if number:  # the first round warms the page cache, and the caches of shiv and pex
                    taken[contender].append(value)
            found[title] = compared(taken, skipped, digits=2)
    return found


def lines(result: dict[str, Any]) -> list[str]:
    """The tables."""
    return [line for title, rows in result.items() for line in table(f"{title}: time to the answer", rows, "ms", 2)]
