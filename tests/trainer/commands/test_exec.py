"""A program of the user's own under the fast start: as Python and torchrun would run it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.beds.runs import command, environ, trainer

ALONE = """
import json, sys
import torch
from beside import NAME
found = dict(
    name=__name__, file=__file__, argv=sys.argv, beside=NAME, main=sys.modules["__main__"].__dict__ is globals(),
    loss=torch.nn.Linear(3, 1)(torch.ones(3)).item().hex(), builtins=len([1]),
)
print(json.dumps(found))
"""

RANKS = """
import json, os, signal, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, generation = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
names = ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "TORCHELASTIC_MAX_RESTARTS")
found = dict(total=total.item(), elastic=dist.is_torchelastic_launched(), **{name: os.environ[name] for name in names})
with open(f"rank-{rank}-{generation}.json", "w") as file:
    json.dump(found, file)
action = sys.argv[1]
if action == "raise" and rank == 1:
    raise ValueError("of the program")
if action == "status" and rank == 1:
    sys.exit(5)
if action == "text" and rank == 1:
    sys.exit("no luck today")
if action == "killed" and rank == 1 and generation == "0":
    os.kill(os.getpid(), signal.SIGKILL)
if action in ("wait", "killed") and (action == "wait" or generation == "0"):
    time.sleep(1000)
if action == "left":
    os._exit(0)
dist.destroy_process_group()
"""


def write(folder: Path, text: str) -> Path:
    """The program, as a file."""
    path = folder / "program.py"
    path.write_text(text)
    (folder / "beside.py").write_text("NAME = 'beside'\n")
    return path


def test_a_program_finds_itself_as_python_runs_it(tmp_path: Path) -> None:
    write(tmp_path, ALONE)
    words = ["program.py", "--epochs", "3", "--start.layers", "x"]
    plain = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=True, env=environ()
    )
    done = trainer("exec", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, expected = json.loads(done.stdout), json.loads(plain.stdout)
    assert {**found, "loss": ""} == {**expected, "loss": ""}


def test_a_module_of_a_package(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys\nfrom mine.part import X\nprint(__name__, __package__, X, sys.argv)"
    )
    (package / "part.py").write_text("X = 3")
    for name in ("mine", "mine.__main__"):
        done = trainer("exec", "-m", name, "-v", cwd=tmp_path)
        assert done.stdout == f"__main__ mine 3 {[str(package / '__main__.py'), '-v']}\n", done.stderr


@pytest.mark.parametrize(
    ("line", "status", "told"),
    [
        ("raise SystemExit(9)", 9, ""),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit('bad luck')", 1, "bad luck\n"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
    ],
)
def test_the_status_is_the_programs(tmp_path: Path, line: str, status: int, told: str) -> None:
    write(tmp_path, line)
    done = trainer("exec", "program.py", cwd=tmp_path)
    assert (done.returncode, done.stderr[-len(told) :] if told else done.stderr) == (status, told)


def test_a_traceback_is_what_python_would_print(tmp_path: Path) -> None:
    write(tmp_path, "def f():\n    raise ValueError('here')\nf()\n")
    done = trainer("exec", "program.py", cwd=tmp_path)
    plain = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == plain.returncode == 1
    assert done.stderr == plain.stderr


def test_what_is_written_at_the_end_is_kept(tmp_path: Path) -> None:
    write(
        tmp_path, "import atexit, torch\nfile = open('out', 'w')\nfile.write('kept')\natexit.register(print, 'last')\n"
    )
    done = trainer("exec", "program.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, (tmp_path / "out").read_text()) == (0, "last\n", "kept")


SPAWN = """
import multiprocessing, torch
class Squares(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return index * index
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Squares(), num_workers=1, multiprocessing_context="spawn")
    print([int(each) for each in loader])
"""


def test_loader_workers_by_spawn_find_the_program(tmp_path: Path) -> None:
    write(tmp_path, SPAWN)
    done = trainer("exec", "program.py", cwd=tmp_path)
    assert done.stdout == "[0, 1, 4, 9]\n", done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "no program is given"),
        (["nowhere.py"], "nowhere.py does not exist"),
        (["."], ". is a directory"),
        (["-m"], "-m needs the name of a module"),
        (["-m", "no.such.module"], "-m no.such.module: "),
        (["--nproc", "two", "x.py"], "'two' is not a whole number"),
        (["--optim.lr", "1", "x.py"], "exec has no setting optim.lr"),
        (["--workers", "1", "x.py"], "unknown flag --workers"),
        (["--start.layers", "gcc", "x.py"], "there is no layer 'gcc'"),
    ],
)
def test_one_clear_error_without_torch(tmp_path: Path, words: list[str], told: str) -> None:
    done = trainer("exec", *words, cwd=tmp_path)
    assert done.returncode == 2
    first, fix = done.stderr.splitlines()
    assert first.startswith("error: ") and told in first
    assert fix.startswith("fix: ")


def ranks(folder: Path, action: str, *words: str, count: int = 2) -> tuple[int, str]:
    """Status and what was printed of that many ranks."""
    write(folder, RANKS)
    done = trainer("exec", "--nproc", str(count), *words, "program.py", action, cwd=folder)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("layers", "count"), [("gc,overlays,fork,exit", 3), ("", 2)])
def test_ranks_meet_as_under_torchrun(tmp_path: Path, layers: str, count: int) -> None:
    status, told = ranks(tmp_path, "done", "--start.layers", layers, "--max-restarts", "2", count=count)
    assert status == 0, told
    for rank in range(count):
        found: dict[str, Any] = json.loads((tmp_path / f"rank-{rank}-0.json").read_text())
        assert found == {
            "total": sum(range(count + 1)), "elastic": True, "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
            "GROUP_RANK": "0", "ROLE_RANK": str(rank), "TORCHELASTIC_MAX_RESTARTS": "2",
        }  # fmt: skip


@pytest.mark.parametrize("layers", ["gc,fork", ""])
def test_a_killed_rank_is_started_again_with_all_others(tmp_path: Path, layers: str) -> None:
    status, told = ranks(tmp_path, "killed", "--start.layers", layers, "--max-restarts", "1")
    assert status == 0, told
    assert told.startswith("restart 1 of 1 after: rank 1: killed by SIGKILL")
    assert json.loads((tmp_path / "rank-0-1.json").read_text())["total"] == 3.0


@pytest.mark.parametrize(
    ("action", "status", "told"),
    [
        ("raise", 1, "error: rank 1: ValueError: of the program"),
        ("status", 5, "error: rank 1: the program exited with status 5"),
        ("text", 1, "no luck today"),
        ("left", 0, ""),
    ],
)
def test_the_first_failure_is_told_once(tmp_path: Path, action: str, status: int, told: str) -> None:
    got, printed = ranks(tmp_path, action)
    assert got == status, printed
    assert printed.count(told) == 1 if told else not printed


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_all_ranks_and_leaves_nothing(tmp_path: Path, number: signal.Signals, status: int) -> None:
    write(tmp_path, RANKS)
    process = subprocess.Popen(
        command("exec", "--nproc", "2", "program.py", "wait"), cwd=tmp_path, env=environ(), stderr=subprocess.PIPE
    )
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not all((tmp_path / f"rank-{rank}-0.json").exists() for rank in (0, 1)):
            time.sleep(0.05)
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, check=True)
        children = [int(each) for each in listed.stdout.split()]
        assert len(children) == 3  # two ranks and the store
        os.kill(process.pid, number)
        _, printed = process.communicate(timeout=100)
    finally:
        process.kill()
    assert (process.returncode, printed) == (status, b"")
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_the_store_ends_with_its_parent(tmp_path: Path) -> None:
    write(tmp_path, RANKS)
    process = subprocess.Popen(command("exec", "--nproc", "2", "program.py", "wait"), cwd=tmp_path, env=environ())
    end = time.monotonic() + 60
    while time.monotonic() < end and not (tmp_path / "rank-0-0.json").exists():
        time.sleep(0.05)
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, check=True)
    children = [int(each) for each in listed.stdout.split()]
    process.kill()
    process.wait()
    while time.monotonic() < end and any(Path(f"/proc/{child}").exists() for child in children):
        time.sleep(0.05)
    assert len(children) == 3
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_under_torchrun_it_is_one_rank(tmp_path: Path) -> None:
    write(tmp_path, RANKS)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "trainer"]
    subprocess.run([*run, "exec", "program.py", "done"], cwd=tmp_path, env=environ(), check=True, timeout=100)
    assert json.loads((tmp_path / "rank-1-0.json").read_text())["total"] == 3.0
