"""Flows in which ranks stay: from the SIGKILL of one rank to every rank's next update, and the memory of all ranks."""

import contextlib
import os
import re
import signal
import tempfile
import time
from pathlib import Path

from tools import startup_steps
from trainer.bench.contenders import FAST, Bed, Contender, torchrun
from trainer.bench.figures import Row, compared, table
from trainer.bench.processes import Failed, Running, running
from trainer.bench.rounds import Tell, turns

SCRIPT = "ddp_stay.py"
LIMIT = 180.0  # seconds to wait for all ranks
RESTARTS = 3
SETTLED = 3  # updates of every rank before one is killed
MEBIBYTE = 1 << 20
FLOWS = {
    "restart": ("from SIGKILL of one of {} ranks to every rank's next update", "s"),
    "memory": ("PSS of all processes of {} ranks after their first update", "MiB"),
}
RANKS = {"restart": (2, 8), "memory": (8,)}
# without it a restart over gloo may find the store of the ranks before: connection refused
TORCHRUN_ENVIRON = (("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"),)


def contenders(pyz: Path, ranks: int) -> dict[str, Contender]:
    """torchrun first."""
    options = ["--max-restarts", str(RESTARTS)]
    command = startup_steps.executed(pyz, ranks, SCRIPT, *options)
    lacks = startup_steps.lacks_exec(pyz)
    return {
        "torchrun": Contender(torchrun(ranks, SCRIPT, *options), environ=TORCHRUN_ENVIRON),
        "trainer exec, no layer": Contender(command, layers="", lacks=lacks),
        "trainer exec": Contender(command, cache="file", lacks=lacks),
        "trainer exec, policy fast": Contender(command, cache="file", lacks=lacks, environ=FAST),
    }


def updates(folder: Path, start: int) -> dict[int, list[tuple[int, int]]]:
    """Rank -> (process, time.monotonic_ns) of each of its updates after the `start`-th restart."""
    found = {}
    for path in folder.glob(f"rank-*.start-{start}.txt"):
        rank = int(path.name.split("-")[1].split(".")[0])
        rows = [line.split() for line in path.read_text().split("\n")[:-1]]  # the last may be half a line
        found[rank] = [(int(process), int(at)) for process, at in rows]
    return found


def wait_for(started: Running, folder: Path, ranks: int, start: int, least: int) -> dict[int, list[tuple[int, int]]]:
    """Until every rank has made `least` updates of that start."""
    deadline = time.monotonic() + LIMIT
    while True:
        found = updates(folder, start)
        if len(found) == ranks and all(len(rows) >= least for rows in found.values()):
            return found
        if started.process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"{' '.join(started.command)}: no {least} updates of {ranks} ranks\n{started.told()}")
        time.sleep(0.005)


def restart(bed: Bed, contender: Contender, ranks: int) -> float:
    """Seconds from the SIGKILL of the last rank to the first update of the last of all ranks that came after."""
    command, environ, folder = bed.prepare(contender)
    with running(command, bed.folder, environ) as started:
        settled = wait_for(started, folder, ranks, 0, SETTLED)
        killed = time.monotonic_ns()
        os.kill(settled[ranks - 1][-1][0], signal.SIGKILL)
        after = wait_for(started, folder, ranks, 1, 1)
        return (max(rows[0][1] for rows in after.values()) - killed) / 1e9


def memory(bed: Bed, contender: Contender, ranks: int) -> float:
    """MiB: the proportional set size of all processes, launchers and agents among them."""
    command, environ, folder = bed.prepare(contender)
    with running(command, bed.folder, environ) as started:
        wait_for(started, folder, ranks, 0, 1)
        return sum(pss(pid) for pid in started.pids()) / MEBIBYTE


def pss(pid: int) -> int:
    """Bytes; 0 of a process that has gone."""
    with contextlib.suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) * 1024 if found else 0
    return 0


def measure(pyz: Path, flow: str, ranks: int, rounds: int, tell: Tell) -> dict[str, Row]:
    """A row a contender."""
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        bed = startup_steps.bed(Path(name))
        all_of = contenders(pyz, ranks)
        skipped = {name: each.lacks for name, each in all_of.items() if each.lacks}
        taken: dict[str, list[float]] = {name: [] for name in all_of}
        first = Contender(startup_steps.executed(pyz, ranks, "ddp.py"), cache="file")  # one that comes to an end
        if not all_of["trainer exec"].lacks:
            with contextlib.suppress(Failed):  # told where it is measured
                bed.make_snapshot(first)
        for number, name in turns(list(all_of), rounds):
            if name in skipped or (flow == "memory" and not number):
                continue
            tell(f"{flow}, {ranks} ranks: {name}: {f'round {number} of {rounds}' if number else 'warming up'}")
            try:
                value = (restart if flow == "restart" else memory)(bed, all_of[name], ranks)
            except Failed as error:
                skipped[name] = str(error).strip().splitlines()[0][:200]
                continue
            if number:
                taken[name].append(value)
        return compared(taken, skipped)


def lines(flow: str, ranks: int, rows: dict[str, Row]) -> list[str]:
    """The table."""
    title, unit = FLOWS[flow]
    return table(title.format(ranks), rows, unit, 3 if unit == "s" else 0)
