"""Ways to a first update of the same model, and the folder that they are run in."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from trainer import startup
from trainer.bench.processes import Failed, run

SCRIPTS = ("tiny.py", "one_process.py", "ddp.py", "spawn.py")
MAKING = 8  # runs that may add to the snapshot
LIMIT = 300.0  # seconds for one run
# what is put on, each with what comes before it; None: all, as it is without any flag
STAGES = {
    "trainer, no layer": "",
    "trainer, gc": "gc",
    "trainer, + overlays": "gc,overlays",
    "trainer, + snapshot": "gc,overlays,snapshot",
    "trainer, + libraries, prefetch": "gc,overlays,snapshot,libraries,prefetch",
    "trainer": None,
    "trainer, policy fast": None,
}
FAST = (("TRAINER_START_POLICY", "fast"),)
# of every run file here: {} is the model and its data
COMMON = """
[run]
threads = 1
steps = 2
device = "cpu"
{}
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
RUN_FILE = COMMON.format("""\
[model]
build = "tiny.py:Tiny"
loss = "tiny.py:loss_sum"
[data]
dataset = "tiny.py:Samples"\
""")


class Contender(NamedTuple):
    """A way to a first update: a command in which FOLDER stands for an empty folder.

    `trains`: it is `trainer train` and leaves a start report; else it writes rank-N.txt files into FOLDER. `cache`: the
    name of the folder of its import snapshot, "" where it has none. `lacks`: why it can't be run here, or "".
    """

    command: list[str]
    trains: bool = False
    layers: str | None = None
    cache: str = ""
    environ: tuple[tuple[str, str], ...] = ()
    lacks: str = ""


class Result(NamedTuple):
    """One run: seconds to the end of the first update on the last rank, seconds of processor time of all its processes
    to their ends (what other load on the machine changes least), the losses, and the layers as rank 0 noted them."""

    seconds: float
    cpu: float
    losses: list[float]
    layers: list[dict[str, Any]]


def spawned(ranks: int, script: str) -> list[str]:
    """The hand-written script, with the least around it that starts its ranks."""
    alone = [*startup.python_command(), f"BED/{script}", "FOLDER"]
    return alone if ranks == 1 else [*startup.python_command(), "BED/spawn.py", str(ranks), *alone[1:]]


def torchrun(ranks: int, script: str, *options: str) -> list[str]:
    """The hand-written script, started by torch's own launcher."""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *options]
    return [*startup.python_command(), *words, f"BED/{script}", "FOLDER"]


def trained(trainer: list[str], ranks: int, run_file: str = "run.toml") -> list[str]:
    """The same model by `trainer train`."""
    return [*trainer, "train", run_file, "--run.folder", "FOLDER", "--nproc", str(ranks)]


def own(trainer: list[str], ranks: int, every: bool = True, run_file: str = "run.toml") -> dict[str, Contender]:
    """The trainer with its layers put on one after the other; without `every`: with none, all, and all and fast."""
    command = trained(trainer, ranks, run_file)
    return {
        name: Contender(
            command,
            True,
            layers,
            "file" if layers is None or "snapshot" in layers else "",
            FAST if name.endswith("fast") else (),
        )
        for name, layers in STAGES.items()
        if every or not layers
    }


class Place:
    """Where the files of a start come from. This one: the page cache, as the runs before have left it."""

    name = "warm"
    starts = 1  # of which the last counts
    between = 0.0  # seconds from one to the next

    @contextmanager
    def ready(self, bed: Path) -> Iterator[list[str]]:
        """Around the starts of one command in the folder `bed`; the words that have to be before the command."""
        yield []

    def counts(self) -> dict[str, int]:
        """What the place has counted so far, within `ready`."""
        return {}


class Bed:
    """A folder with the run file, the scripts, and a cache of its own, so that a snapshot is that of this file."""

    def __init__(self, folder: Path, scripts: Path | None = None, place: Place | None = None) -> None:
        """`scripts`: a folder with more of them."""
        self.folder = folder
        self.place = place or Place()
        self.facts: dict[str, int] = {}
        (folder / "run.toml").write_text(RUN_FILE)
        plain = resources.files("trainer.bench").joinpath("plain")
        for name in SCRIPTS:
            (folder / name).write_bytes(plain.joinpath(name).read_bytes())
        for path in sorted(scripts.glob("*.py")) if scripts else []:
            if path.name not in SCRIPTS:
                shutil.copy(path, folder)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINER_", "PYTHON"))}
        self.environ = clean | {
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }

    def prepare(self, contender: Contender) -> tuple[list[str], dict[str, str], Path]:
        """Command, environment and the empty folder that it writes to."""
        place = self.folder / "out"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        environ = self.environ | dict(contender.environ)
        environ["TRAINER_SNAPSHOT_DIR"] = str(self._snapshots(contender))
        if contender.layers is not None:
            environ["TRAINER_START_LAYERS"] = contender.layers
        words = [str(place) if word == "FOLDER" else word for word in contender.command]
        return [word.replace("BED/", f"{self.folder}/", 1) for word in words], environ, place

    def run(self, contender: Contender) -> Result:
        """From spawn to exit. Failed where it does not come to its end."""
        with self.place.ready(self.folder) as around:
            for start_number in range(self.place.starts):
                time.sleep(self.place.between if start_number else 0.0)
                command, environ, place = self.prepare(contender)
                before = self.place.counts()
                ended, start = run([*around, *command], self.folder, environ, LIMIT)
            self.facts = {name: value - before[name] for name, value in self.place.counts().items()}
        if contender.trains:
            reports = [json.loads(path.read_text()) for path in sorted((place / "start").glob("rank-*.json"))]
            done = max(report["started_ns"] + report["seconds"] * 1e9 for report in reports)
            rows = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
            losses = [row["loss"] for row in rows if "event" not in row]
            return Result((done - start) / 1e9, ended.cpu, losses, reports[0]["layers"])
        told = [[float(word) for word in path.read_text().split()] for path in sorted(place.glob("rank-*.txt"))]
        if not told:
            raise Failed(f"{' '.join(command)} wrote no rank-N.txt\n{ended.output}")
        return Result((max(words[0] for words in told) - start) / 1e9, ended.cpu, told[0][1:], [])

    def make_snapshot(self, contender: Contender) -> None:
        """Runs until the snapshot stays as it is; each run adds to it, within its time."""
        before: object = None
        for _ in range(MAKING):
            self.run(contender)
            folder = self._snapshots(contender)
            now = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()) if folder.is_dir() else []
            if now == before:
                return
            before = now

    def _snapshots(self, contender: Contender) -> Path:
        return self.folder / "snapshots" / (contender.cache or "none")
