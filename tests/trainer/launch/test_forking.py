"""Ranks forked from a process that has imported: they are what ranks of their own would be, sooner."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.beds.runs import command, environ, flags, losses
from trainer.launch.stop import SIGNALS

# prints what a rank finds, after `load` has run in its parent
PROGRAM = """
import json, os, random, signal, sys
sys.path[:0] = {path!r}
from trainer.launch.detect import RESTARTS, LOCAL_FOLDER
from trainer.launch.forking import NOT_FORKED, Forker
from trainer.launch.local import run_ranks
from trainer.launch.starting import Spawner
from trainer.launch import child
from trainer.launch.detect import detect

def load():
    {load}

def rank():
    import threading
    world = detect(os.environ)
    child.start_child(world)
    found = dict(
        omp=os.environ.get("OMP_NUM_THREADS"), blas=os.environ.get("OPENBLAS_NUM_THREADS"),
        why=os.environ.get(NOT_FORKED),
        draw=random.random(), session=os.getsid(0) == os.getpid(), parent=os.getppid(), loaded="decimal" in sys.modules,
        comm=open("/proc/self/comm").read().strip(), stdin=sys.stdin.read(), pipe=signal.set_wakeup_fd(-1),
        held=sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        usr1=signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL,
    )
    with open(f"rank-{{world.rank}}.json", "w") as file:
        json.dump(found, file)
    child.mark_done(world)
    return 0

if "RANK" in os.environ:
    sys.exit(rank())
os.environ.pop("OMP_NUM_THREADS", None)
sys.exit(run_ranks(Forker(load, rank, Spawner([sys.executable, __file__])), 2, max_restarts=0))
"""


def ranks(folder: Path, load: str) -> list[dict[str, Any]]:
    """What two ranks find."""
    program = folder / "program.py"
    program.write_text(PROGRAM.format(load=load, path=[path for path in sys.path if path]))
    subprocess.run([sys.executable, str(program)], cwd=folder, check=True, timeout=100, stdin=subprocess.PIPE)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


def test_a_forked_rank_is_as_if_it_had_been_started(tmp_path: Path) -> None:
    found = ranks(tmp_path, 'import decimal; assert os.environ["OPENBLAS_NUM_THREADS"] == "1"')
    cores = len(os.sched_getaffinity(0))
    for number, each in enumerate(found):
        assert each["loaded"] and each["session"] and each["why"] is None
        assert 1 <= int(each["omp"]) <= max(1, cores // 2)
        assert each["blas"] == os.environ.get("OPENBLAS_NUM_THREADS")
        assert (each["comm"], each["stdin"], each["pipe"]) == (f"rank {number}", "", -1)
        assert each["usr1"]
        assert len(each["held"]) == len(SIGNALS)
    assert found[0]["draw"] != found[1]["draw"]
    assert found[0]["parent"] == found[1]["parent"]


def test_threads_that_an_import_has_started_are_never_forked(tmp_path: Path) -> None:
    found = ranks(tmp_path, "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()")
    for each in found:
        assert each["why"].startswith("importing has started 1 thread (")
        assert not each["loaded"] and each["session"]


def test_an_error_while_importing_is_told_once(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        PROGRAM.format(load='raise ImportError("broken library")', path=[path for path in sys.path if path])
    )
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, check=False, timeout=100, capture_output=True)
    assert done.returncode == 1
    assert done.stderr.count(b"ImportError: broken library") == 1


def train(folder: Path, name: str, layers: str, **environment: str) -> list[dict[str, Any]]:
    """Six updates of two ranks in the folder; the start reports of both."""
    (folder / "run.toml").touch()
    words = ["train", "run.toml", *flags(run__folder=name, run__device="auto", run__threads=""), "--nproc", "2"]
    done = subprocess.run(
        command(*words, "--start.layers", layers),
        cwd=folder, env=environ(**environment), capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / name / "start" / f"rank-0000{rank}.json").read_text()) for rank in (0, 1)]


def test_two_threads_a_rank_compute_the_same_bits(tmp_path: Path) -> None:
    forked = train(tmp_path, "forked", "gc,overlays,fork", OMP_NUM_THREADS="2")
    started = train(tmp_path, "started", "gc,overlays", OMP_NUM_THREADS="2")
    assert losses(tmp_path / "forked") == losses(tmp_path / "started")
    for report in forked:
        assert {note["layer"]: note["state"] for note in report["layers"]}["fork"] == "on"
        names = [phase["name"] for phase in report["phases"]]
        assert names.index("torch") < names.index("fork") < names.index("first update")
        # the parent's start is the rank's
        assert report["phases"][0]["end"] - report["phases"][0]["begin"] > 0
        assert abs(report["started_ns"] - forked[0]["started_ns"]) < 1e6
    assert {note["layer"]: note["state"] for note in started[0]["layers"]}["fork"] == "off"


STUB = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int called(const char *name) {
    FILE *file = fopen(getenv("CALLS"), "a");
    fprintf(file, "%d %s\\n", (int)getpid(), name);
    fclose(file);
    return 100; /* CUDA_ERROR_NO_DEVICE */
}
"""
# what the runtime library or torch may ask the driver for first
CALLS = (
    "cuInit",
    "cuDriverGetVersion",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuDeviceGetCount",
    "cuGetExportTable",
)


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A folder with a libcuda.so.1 that writes down who calls it."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to make the stand-in for the driver with")
    source = tmp_path / "stub.c"
    source.write_text(STUB + "".join(f'int {name}(void) {{ return called("{name}"); }}\n' for name in CALLS))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(source)], check=True)
    return tmp_path


def test_the_process_that_forks_never_touches_cuda(tmp_path: Path, driver: Path) -> None:
    calls = tmp_path / "calls"
    reports = train(tmp_path, "run", "gc,snapshot,overlays,fork", LD_LIBRARY_PATH=str(driver), CALLS=str(calls))
    callers = {int(line.split()[0]) for line in calls.read_text().splitlines()}
    # each rank has asked whether there is a device; nobody else has
    assert callers == {report["process"] for report in reports}
