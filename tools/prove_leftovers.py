"""Nothing is left of runs that were killed: no process, nothing in /dev/shm, nothing in the temporary folder.

Many short runs, by turns of one rank, two ranks, loader workers, and a program under `exec`. Half of them are killed at
a random moment: the process that was started, one of its children, or all at once. After each the process table must be
empty of it within seconds; what a killed launch leaves in /dev/shm or the temporary folder the next one removes, so
that after a last run that ends by itself nothing is left.

    uv run python -m tools.prove_leftovers                  100 runs, writes docs/proofs/leftovers.json
    uv run python -m tools.prove_leftovers --runs 8 --kinds "two ranks;exec, two ranks"
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from tools.proof import need_pyz, small_text, write
from tools.proof import parser as proof_parser

MARK = "LEFTOVERS_PROOF_MARK"
SETTINGS = {
    "run.steps": "30", "data.sequence": "32", "batch.size": "8", "model.layers": "1", "model.width": "32",
    "model.heads": "2", "checkpoint.every": "10", "log.progress": "none", "precision.compute": "fp32",
    "run.threads": "1",
}  # fmt: skip
PROGRAM = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(int(sys.argv[1])):
    dist.all_reduce(torch.ones(1000))
dist.destroy_process_group()
"""
MEMORY = Path("/dev/shm")
PATIENCE_SECONDS = 20.0


def kinds(data: Path) -> dict[str, list[str]]:
    """Name -> words of the command."""
    flags = [word for name, value in SETTINGS.items() for word in (f"--{name}", value)]
    train = ["train", "run.toml", *flags, "--data.text", str(data), "--data.validation", str(data)]
    workers = ["--data.workers", "2"]
    return {
        "one rank": train,
        "two ranks": [*train, "--nproc", "2"],
        "one rank, loader workers": [*train, *workers],
        "two ranks, loader workers": [*train, *workers, "--nproc", "2"],
        "exec, two ranks": ["exec", "--nproc", "2", "program.py", "200"],
    }


def processes(mark: str) -> list[int]:
    """Those whose environment holds the mark: what a process was started with, and all that it forked since."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                if mark.encode() in (place / "environ").read_bytes():
                    found.append(int(place.name))
            except OSError:
                continue
    return found


def gone(mark: str) -> list[int]:
    """Waits until none is there; those that stay."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and processes(mark):
        time.sleep(0.02)
    return processes(mark)


def held() -> set[Path]:
    """What of /dev/shm some process has open or mapped."""
    found = set()
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                names = [str(each.readlink()) for each in (place / "fd").iterdir()]
                maps = (place / "maps").read_text().splitlines()
                names += [line.split(maxsplit=5)[5] for line in maps if "/dev/shm/" in line]
                found |= {Path(*Path(name).parts[:4]) for name in names if name.startswith("/dev/shm/")}
    return found


def left_in_memory(before: set[Path]) -> list[str]:
    """New in /dev/shm and nobody's: once our processes have ended, what is in use is of others on this machine."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        left = set(MEMORY.iterdir()) - before - held()
        if not left or time.monotonic() > end:
            return sorted(path.name for path in left)
        time.sleep(0.1)


def kill(whom: str, first: int, mark: str, draw: random.Random) -> None:
    """SIGKILL to the process that was started, to another of its processes, or to all."""
    there = processes(mark)
    others = [number for number in there if number != first]
    chosen = {"the parent": [first], "a child": [draw.choice(others)] if others else [first], "all": there}[whom]
    for number in chosen:
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            continue


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--kinds", help="of the runs, separated by semicolons (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    pyz = need_pyz(arguments.pyz)
    memory = set(MEMORY.iterdir())
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="p-") as name:
        folder = Path(name)
        temporary = folder / "tmp"
        temporary.mkdir()
        (folder / "run.toml").touch()
        (folder / "program.py").write_text(PROGRAM)
        every = kinds(small_text(folder, 50_000))
        commands = {kind: every[kind] for kind in (arguments.kinds.split(";") if arguments.kinds else every)}
        lasting: dict[str, float] = {}
        for number in range(arguments.runs + 1):
            kind = list(commands)[number % len(commands)]
            last = number == arguments.runs
            killed = number >= len(commands) and number % 2 == 1 and not last
            mark = uuid.uuid4().hex
            words = every["two ranks, loader workers"] if last else commands[kind]
            if words[0] == "train":
                words = [*words, "--run.folder", f"runs/{number}"]
            began = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, str(pyz), *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": str(temporary), MARK: mark}, start_new_session=True,
            )  # fmt: skip
            whom = draw.choice(["the parent", "a child", "all"]) if killed else ""
            if killed:
                try:
                    process.wait(draw.uniform(0.2, lasting.get(kind, 3.0)))
                except subprocess.TimeoutExpired:
                    kill(whom, process.pid, mark, draw)
            status = process.wait(300)
            if not killed:
                lasting[kind] = time.monotonic() - began
            left = gone(mark)
            rows.append({"kind": kind, "killed": whom, "status": status, "processes_left": len(left)})
            told = f"killed {whom}" if killed else "left alone"
            print(f"{number + 1:>4}: {kind}, {told}: status {status}, {len(left)} processes left", flush=True)
            shutil.rmtree(folder / "runs", ignore_errors=True)
        files = sorted(path.name for path in temporary.iterdir())
    in_memory = left_in_memory(memory)
    bad = [row for row in rows if row["processes_left"] or (not row["killed"] and row["status"] != 0)]
    print(
        f"{len(rows)} runs, {sum(bool(row['killed']) for row in rows)} killed; {len(bad)} left a process or failed by "
        f"themselves; left in /dev/shm: {in_memory or 'nothing'}; in the temporary folder: {files or 'nothing'}"
    )
    write(
        "leftovers", {"runs": rows, "bad": len(bad), "left_in_memory": in_memory, "left_in_temporary": files}, arguments
    )
    return 1 if bad or in_memory or files else 0


if __name__ == "__main__":
    sys.exit(main())
