"""Time to the first finished update: the file against hand-written scripts on the same torch, without anything of ours.

The scripts lie in src/trainer/bench/plain/ and tools/plain/: the same model, weights, batches and optimizer. A time
runs from the spawn of the first process to the end of the first update on the last rank (time.monotonic_ns, which all
processes of a machine share). Every contender makes two updates; the losses of all must be the same, bit for bit.
"""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tools import startup_calls, startup_packages
from trainer.bench.contenders import COMMON, FAST, STAGES, Bed, Contender, Place, own, spawned, torchrun, trained
from trainer.bench.figures import Row, table
from trainer.bench.processes import Failed
from trainer.bench.rounds import Tell, measure

PLAIN = Path(__file__).resolve().parent / "plain"
GROUP = "uv run --group bench python -m tools.bench_startup"
# distribution -> name of the contender, script
TRAINERS = {
    "lightning": (("Lightning Fabric", "fabric.py"), ("Lightning Trainer", "lightning_trainer.py")),
    "accelerate": (("Accelerate", "accelerated.py"),),
}


class Flow(NamedTuple):
    """`by_torchrun`: torchrun is what the others are compared with, not the least that starts the ranks. The model of
    run.toml is code of the user's own, that of gpt.toml is built in."""

    title: str
    ranks: int
    script: str
    trains: bool = False
    by_torchrun: bool = False
    run_file: str = "run.toml"


FLOWS = {
    "gpt": Flow("built-in GPT, one process", 1, "gpt.py", trains=True, run_file="gpt.toml"),
    "gpt2": Flow("built-in GPT, DDP, 2 ranks", 2, "gpt.py", trains=True, run_file="gpt.toml"),
    "one": Flow("one process", 1, "one_process.py", trains=True),
    "ddp": Flow("DDP, 2 ranks", 2, "ddp.py", trains=True),
    "fsdp": Flow("FSDP2, 2 ranks", 2, "fsdp.py"),
    "pipeline": Flow("pipeline 1F1B, 2 ranks", 2, "pipeline.py"),
    "dcp": Flow("FSDP2 and a DCP save, 2 ranks", 2, "dcp.py"),
    "n2": Flow("DDP on one node, 2 ranks", 2, "ddp.py", trains=True, by_torchrun=True),
    "n4": Flow("DDP on one node, 4 ranks", 4, "ddp.py", trains=True, by_torchrun=True),
    "n8": Flow("DDP on one node, 8 ranks", 8, "ddp.py", trains=True, by_torchrun=True),
}


GPT_RUN_FILE = COMMON.format("""\
[model]
layers = 4
width = 64
heads = 4
[data]
text = ["text.txt"]
sequence = 32
holdout = 0\
""")


def bed(folder: Path, place: Place | None = None) -> Bed:
    """A bed with all scripts, and the built-in model's run file and text."""
    (folder / "gpt.toml").write_text(GPT_RUN_FILE)
    (folder / "text.txt").write_bytes(bytes(97 + 7 * at * at % 26 for at in range(600)))
    return Bed(folder, PLAIN, place)


def executed(pyz: Path, ranks: int, script: str, *options: str) -> list[str]:
    """The hand-written script under the fast start of the file."""
    nproc = ["--nproc", str(ranks)] if ranks > 1 else []
    return [sys.executable, str(pyz), "exec", *nproc, *options, f"BED/{script}", "FOLDER"]


def lacks_exec(pyz: Path) -> str:
    """Why the file can't run a script of the user's own, or ""."""
    done = subprocess.run([sys.executable, str(pyz), "exec", "--help"], capture_output=True, check=False)
    return "this file has no command exec" if done.returncode else ""


def contenders(name: str, pyz: Path, folder: Path) -> dict[str, Contender]:
    """Name -> contender; the first is what the others are compared with. `folder`: where other packages are made."""
    flow = FLOWS[name]
    lacks = "" if find_script(flow.script) else f"there is no {flow.script}"
    found = {"plain": Contender(spawned(flow.ranks, flow.script), lacks=lacks)}
    if flow.ranks > 1:
        found["plain, by torchrun"] = Contender(torchrun(flow.ranks, flow.script), lacks=lacks)
    if flow.by_torchrun:
        found = dict(reversed(found.items()))
    python = sys.executable
    if flow.trains and flow.by_torchrun:
        found["trainer"] = Contender(trained([python, str(pyz)], flow.ranks, flow.run_file), trains=True, cache="file")
        found["trainer, policy fast"] = found["trainer"]._replace(environ=FAST)
    elif flow.trains:
        found |= own([python, str(pyz)], flow.ranks, run_file=flow.run_file)
    lacks = lacks or lacks_exec(pyz)
    command = executed(pyz, flow.ranks, flow.script)
    found["trainer exec"] = Contender(command, cache="file", lacks=lacks)
    if not flow.trains:
        found["trainer exec, no layer"] = Contender(command, layers="", lacks=lacks)
        found["trainer exec, policy fast"] = found["trainer exec"]._replace(environ=FAST)
    if name == "one":
        found |= others(pyz, folder)
    return found


def find_script(name: str) -> bool:
    """Whether there is such a script."""
    own_folder = Path(__file__).resolve().parent.parent / "src" / "trainer" / "bench" / "plain"
    return (PLAIN / name).is_file() or (own_folder / name).is_file()


def others(pyz: Path, folder: Path) -> dict[str, Contender]:
    """Other trainers, and this one in other packages."""
    found: dict[str, Contender] = {}
    for distribution, scripts in TRAINERS.items():
        lacks = "" if find_spec(distribution) else f"{distribution} is not installed: {GROUP}"
        found |= {name: Contender(spawned(1, script), lacks=lacks) for name, script in scripts}
    for name, package in startup_packages.packages(pyz, folder).items():
        command = trained(package.command, 1)
        found[f"trainer as {name}"] = Contender(
            command, True, cache=f"as-{len(found)}", environ=package.environ, lacks=package.lacks
        )
    return found


def run(pyz: Path, flow: str, rounds: int, tell: Tell, place: Place, only: list[str] | None = None) -> dict[str, Row]:
    """Rows of rounds.measure; those named in `only` and the first, or all. Empty where nothing can be run."""
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        folder = Path(name)
        all_of = contenders(flow, pyz, folder)
        first = next(iter(all_of))
        if all_of[first].lacks:
            return {name: {"skipped": each.lacks} for name, each in all_of.items()}
        if only is not None:
            all_of = {name: each for name, each in all_of.items() if name == first or name in only}
        try:
            return measure(bed(folder, place), all_of, rounds, lambda text: tell(f"{flow}, {place.name}: {text}"))
        except Failed as error:  # of what all are compared with; the other flows may go on
            tell(str(error))
            return {first: {"skipped": str(error).splitlines()[0]}}


def calls(pyz: Path) -> dict[str, dict[str, int]]:
    """System calls of whole runs in one process, by contender: the script, then each stage."""
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        made = bed(Path(name))
        counts = {}
        for contender, each in contenders("one", pyz, Path(name)).items():
            if each.lacks or contender not in ("plain", "trainer exec", *STAGES):
                continue
            if each.cache:
                made.make_snapshot(each)
            command, environ, _ = made.prepare(each)
            counts[contender] = startup_calls.count(command, made.folder, environ)
    return counts


def lines(flow: str, rows: dict[str, Row]) -> list[str]:
    """The table."""
    told = table(f"{FLOWS[flow].title}: time to the first update", rows)
    losses = next((row["losses"] for row in rows.values() if "losses" in row), None)
    return told if losses is None else [*told, f"  losses of all, bit for bit: {', '.join(map(repr, losses))}"]
