"""A rank is killed again and again, and every time all ranks go on, with the losses of a run left alone.

A run of several ranks trains under `fault.max_restarts`; whenever it has made some updates since the last restart, a
random rank gets SIGKILL, or now and then SIGSEGV or SIGABRT. Measured: from the kill to the next update of the new
generation. Losses are compared in fp64: on two ranks they are the same bits; on more DDP adds the ranks' gradients in
another order in the first update of each life (it sorts its buckets after that), which is a matter of rounding.

    uv run python -m tools.prove_restarts                       50 kills of 4 ranks, writes docs/proofs/restarts.json
    uv run python -m tools.prove_restarts --kills 5 --nproc 2
"""

import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.proof import losses, need_pyz, small_text, train, write
from tools.proof import parser as proof_parser

SETTINGS = {
    "data.sequence": "32", "batch.size": "8", "model.layers": "1", "model.width": "32", "model.heads": "2",
    "checkpoint.every": "2", "log.progress": "none", "precision.compute": "fp64",
}  # fmt: skip
UPDATES_A_LIFE = 4
ROUNDING = 1e-9
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)


def command(run: str, data: Path, nproc: int, updates: int, restarts: int, layers: str | None) -> list[str]:
    """The arguments of `train`."""
    settings = SETTINGS | {
        "run.folder": run, "run.steps": str(updates), "data.text": str(data), "data.validation": str(data),
        "fault.max_restarts": str(restarts),
    }  # fmt: skip
    if layers is not None:
        settings["start.layers"] = layers
    flags = [word for name, value in settings.items() for word in (f"--{name}", value)]
    return ["run.toml", "--nproc", str(nproc), *flags]


def ranks_of(parent: int) -> dict[int, int]:
    """Rank -> process id, of the ranks that are there."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=,comm=", "--ppid", str(parent)], capture_output=True, text=True, check=False
    )
    found = {}
    for line in listed.stdout.splitlines():
        name = re.search(r"rank (\d+)$", line)
        number = int(line.split()[0])
        if name:
            found[int(name.group(1))] = number
        else:  # not forked: it has an environment of its own
            try:
                variables = Path(f"/proc/{number}/environ").read_bytes()
            except OSError:
                continue
            rank = re.search(rb"(?:^|\0)RANK=(\d+)", variables)
            if rank:
                found[int(rank.group(1))] = number
    return found


def updates(metrics: Path) -> int:
    """How many updates the run has written, in all its lives (a life repeats what came after its checkpoint)."""
    try:
        return sum(1 for line in metrics.read_bytes().splitlines() if b'"step"' in line)
    except FileNotFoundError:
        return 0


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--nproc", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", help="layers of the fast start (default: those without a flag)")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    total = arguments.kills * (UPDATES_A_LIFE + 8) + 50
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pyz = folder / "trainer.pyz"
        shutil.copy(need_pyz(arguments.pyz), pyz)
        (folder / "run.toml").touch()
        data = small_text(folder, 100_000)
        alone = train(pyz, folder, *command("alone", data, arguments.nproc, total, 0, arguments.layers))
        assert alone.returncode == 0, alone.stderr
        words = command("run", data, arguments.nproc, total, arguments.kills + 5, arguments.layers)
        process = subprocess.Popen(
            [sys.executable, str(pyz), "train", *words],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        rows = kills(process, folder / "run" / "metrics.jsonl", arguments.kills, arguments.nproc, draw)
        _, printed = process.communicate(timeout=600)
        worst = difference(folder / "alone", folder / "run") if process.returncode == 0 else None
    restarts = printed.count("restart ")
    seconds = [row["seconds"] for row in rows]
    same = worst is not None and worst <= (ROUNDING if arguments.nproc > 2 else 0)
    good = len(rows) if same and restarts == len(rows) else 0
    print(
        f"{restarts} restarts after {len(rows)} kills, status {process.returncode}, "
        f"{f'losses differ by at most {worst:.1e}' if same else f'DIFFERENT ({worst}): ' + printed[-2000:]}; "
        f"kill to next update: median {statistics.median(seconds):.2f} s, most {max(seconds):.2f} s"
    )
    result = {
        "good": good,
        "kills": len(rows),
        "restarts": restarts,
        "ranks": arguments.nproc,
        "same": same,
        "rows": rows,
    }
    write("restarts", result, arguments)
    return 0 if good == arguments.kills else 1


def difference(one: Path, other: Path) -> float:
    """The largest relative difference of two runs' losses; infinite if one has more of them."""
    pairs = list(zip(losses(one), losses(other), strict=False))
    if len(losses(one)) != len(losses(other)):
        return float("inf")
    return max(abs(first - second) / abs(first) for first, second in pairs)


def kills(
    process: "subprocess.Popen[str]", metrics: Path, count: int, nproc: int, draw: random.Random
) -> list[dict[str, float]]:
    """Kills that many times; what was killed how, and the seconds to the next update."""
    rows: list[dict[str, float]] = []
    seen = 0
    while len(rows) < count and process.poll() is None:
        wait_for(process, metrics, seen + draw.randint(1, UPDATES_A_LIFE))
        rank, number = draw.randrange(nproc), draw.choice(SIGNALS)
        pids = ranks_of(process.pid)
        if len(pids) < nproc:
            continue
        seen = updates(metrics)
        began = time.monotonic()
        try:
            os.kill(pids[rank], number)
        except ProcessLookupError:
            continue
        # an update that was under way may still be written by rank 0
        while not set(ranks_of(process.pid).values()).isdisjoint(pids.values()) and process.poll() is None:
            time.sleep(0.005)
        seen = updates(metrics)
        wait_for(process, metrics, seen + 1)
        rows.append({"rank": rank, "signal": int(number), "seconds": round(time.monotonic() - began, 3)})
        print(f"{len(rows):>3}: rank {rank}, {number.name}: {rows[-1]['seconds']:.2f} s", flush=True)
        seen = updates(metrics)
    return rows


def wait_for(process: "subprocess.Popen[str]", metrics: Path, least: int) -> None:
    """Until so many updates are written, or the run has ended."""
    while updates(metrics) < least and process.poll() is None:
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main())
