"""Time to the first finished update: the file against hand-written scripts on the same torch, without anything of ours.

The scripts are tools/plain/: the same model, weights, batches and optimizer. A time runs from the spawn of the first
process to the end of the first update on the last rank (time.monotonic_ns, which all processes of a machine share).
Every contender makes two updates; the losses of both must be the same, bit for bit.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools import startup_calls

PLAIN = Path(__file__).resolve().parent / "plain"
FLOWS = {"one": ("one process", 1), "ddp": ("DDP, 2 ranks", 2)}
MAKING = 8  # runs that may add to the snapshot
LIMIT = 300.0  # seconds for one run
# what is put on, each with what comes before it
STAGES = {
    "trainer, no layer": "",
    "trainer, gc": "gc",
    "trainer, gc + overlays": "gc,overlays",
    "trainer": None,  # as it is without any flag: all
}
RUN_FILE = """
[run]
threads = 1
steps = 2
device = "cpu"
[model]
build = "tiny.py:Tiny"
loss = "tiny.py:loss_sum"
[data]
dataset = "tiny.py:Samples"
shuffle = false
[batch]
size = 8
[optim]
clip = 0.0
schedule = "constant"
[precision]
compute = "fp32"
[checkpoint]
final = false
[log]
progress = "none"
"""


class Contender:
    """A way to a first update. `layers`: the trainer's, None for those it has without a flag."""

    def __init__(self, command: list[str], ours: bool, layers: str | None = None) -> None:
        self.command = command
        self.ours = ours
        self.layers = layers


class Result:
    """One run: seconds to the first update, seconds of processor time of all its processes to their ends (what other
    load on the machine changes least), both losses, and the layers as rank 0 has noted them."""

    def __init__(self, seconds: float, cpu: float, losses: list[float], layers: list[dict[str, Any]]) -> None:
        self.seconds = seconds
        self.cpu = cpu
        self.losses = losses
        self.layers = layers


def contenders(flow: str, pyz: Path) -> dict[str, Contender]:
    """Name -> contender; the first is what the others are compared with. FOLDER stands for an empty folder."""
    python, ranks = sys.executable, FLOWS[flow][1]
    if ranks == 1:
        found = {"plain": Contender([python, str(PLAIN / "one_process.py"), "FOLDER"], False)}
    else:
        rank = [str(PLAIN / "ddp.py"), "FOLDER"]
        torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        found = {
            "plain": Contender([python, str(PLAIN / "spawn.py"), str(ranks), *rank], False),
            "plain, by torchrun": Contender([*torchrun, *rank], False),
        }
    ours = [python, str(pyz), "train", "run.toml", "--run.folder", "FOLDER", "--nproc", str(ranks)]
    return found | {name: Contender(ours, True, layers) for name, layers in STAGES.items()}


class Bed:
    """A folder with the run file, the model, and a cache of its own, so that a snapshot is that of this file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "run.toml").write_text(RUN_FILE)
        shutil.copy(PLAIN / "tiny.py", folder)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINER_", "PYTHON"))}
        self.environ = clean | {
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "TRAINER_SNAPSHOT_DIR": str(folder / "snapshots"),
        }

    def prepare(self, contender: Contender) -> tuple[list[str], dict[str, str], Path]:
        """Command, environment and the empty folder that it writes to."""
        place = self.folder / "out"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        environ = dict(self.environ)
        if contender.layers is not None:
            environ["TRAINER_START_LAYERS"] = contender.layers
        return [str(place) if word == "FOLDER" else word for word in contender.command], environ, place

    def run(self, contender: Contender) -> Result:
        """From spawn to exit."""
        command, environ, place = self.prepare(contender)
        before = os.times()
        start = time.monotonic_ns()
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=environ,
            timeout=LIMIT,
            start_new_session=True,  # Linux shares processors out by session: the same for all
        )
        if done.returncode:
            raise SystemExit(f"error: {' '.join(command)} ended with {done.returncode}\n{done.stderr}")
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        if contender.ours:
            reports = [json.loads(path.read_text()) for path in sorted((place / "start").glob("rank-*.json"))]
            ended = max(report["started_ns"] + report["seconds"] * 1e9 for report in reports)
            rows = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
            losses = [row["loss"] for row in rows if "step" in row]
            return Result((ended - start) / 1e9, cpu, losses, reports[0]["layers"])
        told = [[float(word) for word in path.read_text().split()] for path in sorted(place.glob("rank-*.txt"))]
        return Result((max(words[0] for words in told) - start) / 1e9, cpu, told[0][1:], [])

    def make_snapshot(self, contender: Contender) -> None:
        """Runs until the snapshot stays as it is; each run adds to it, within its time."""
        before: object = None
        for _ in range(MAKING):
            modules = {note["layer"]: note.get("modules") for note in self.run(contender).layers}.get("snapshot")
            if modules is not None and modules == before:
                return
            before = modules


def measure(pyz: Path, flow: str, rounds: int) -> dict[str, dict[str, Any]]:
    """{contender: {"seconds", "ratio", "spread_s", "cpu_s", "losses", "layers"}}; `ratio` is the median of those of
    each round. Ends with an error where the losses differ."""
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        bed = Bed(Path(name))
        all_of = contenders(flow, pyz)
        bed.make_snapshot(all_of["trainer"])
        runs: dict[str, list[Result]] = {contender: [] for contender in all_of}
        for number in range(rounds + 1):
            order = list(all_of)
            for contender in order if number % 2 else order[::-1]:
                result = bed.run(all_of[contender])
                if number:  # the first round warms the page cache
                    runs[contender].append(result)
    base = next(iter(runs.values()))
    found = {}
    for contender, results in runs.items():
        seconds = [result.seconds for result in results]
        ratios = [result.seconds / plain.seconds for result, plain in zip(results, base, strict=True)]
        if any(result.losses != base[0].losses for result in results):
            raise SystemExit(f"error: {contender} has other losses: {results[0].losses}, not {base[0].losses}")
        found[contender] = {
            "seconds": round(statistics.median(seconds), 3),
            "ratio": round(statistics.median(ratios), 3),
            "spread_s": [round(value, 3) for value in _quartiles(seconds)],
            "cpu_s": round(statistics.median(result.cpu for result in results), 2),
            "losses": results[0].losses,
            "layers": results[-1].layers,
        }
    return found


def _quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4)
    return low, high


def calls(pyz: Path) -> dict[str, dict[str, int]]:
    """System calls of whole runs in one process, by contender."""
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        bed = Bed(Path(name))
        counts = {}
        for contender, each in contenders("one", pyz).items():
            if each.layers:
                continue
            if each.ours and each.layers is None:
                bed.make_snapshot(each)
            command, environ, _ = bed.prepare(each)
            counts[contender] = startup_calls.count(command, bed.folder, environ)
    return counts


def lines(flow: str, result: dict[str, dict[str, Any]]) -> list[str]:
    """The table."""
    told = [f"{FLOWS[flow][0]}: time to the first update"]
    for contender, values in result.items():
        low, high = values["spread_s"]
        aside = [f"{note['layer']} {note['state']}" for note in values["layers"] if note["state"] != "off"]
        told.append(
            f"  {contender:<24} {values['seconds']:7.3f} s ({low:.3f}-{high:.3f})  {values['ratio']:6.3f} of plain"
            f"  {values['cpu_s']:6.2f} s of processors" + (f"  [{', '.join(aside)}]" if aside else "")
        )
    told.append(f"  losses of all, bit for bit: {', '.join(map(repr, result['plain']['losses']))}")
    return told
