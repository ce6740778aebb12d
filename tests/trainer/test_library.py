"""The trainer as a library: light to import, and the same numbers on any number of ranks in a loop of one's own."""

import ast
import os
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import trainer

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples" / "own_loop.py"


def run(*command: str) -> str:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True, timeout=100).stdout


def test_importing_it_imports_nothing() -> None:
    script = "import sys, trainer; trainer.Layout(shard=2); print([m for m in ('torch', 'numpy') if m in sys.modules])"
    assert run("-c", script).strip() == "[]"


def test_every_name_is_there() -> None:
    for name in trainer._ROOMS:
        assert getattr(trainer, name).__doc__
        assert name in dir(trainer)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = trainer.Nothing
    imported = {
        alias.name
        for node in ast.walk(ast.parse(Path(trainer.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("trainer.")
        for alias in node.names
    }
    assert imported == set(trainer._ROOMS)  # what the type checker sees


def test_a_loop_of_ones_own_gives_the_same_losses_on_two_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 30
    port = free_port()
    with started(0, port) as first, started(1, port) as second:
        runpy.run_path(str(EXAMPLE))
        alone = numbers(capsys.readouterr().out)
        two = numbers(first.communicate(timeout=100)[0])
        assert (first.returncode, second.wait(100)) == (0, 0)
    assert len(alone) == 10
    assert alone[-1][0] < alone[0][0]
    for one, other in zip(alone, two, strict=True):
        assert other == pytest.approx(one, rel=1e-5)


def started(rank: int, port: int) -> "subprocess.Popen[str]":
    """A rank of two, as torchrun starts it."""
    known = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environ = {**os.environ, **known, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen([sys.executable, str(EXAMPLE)], env=environ, stdout=subprocess.PIPE, text=True)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def numbers(text: str) -> list[tuple[float, float]]:
    """(loss, gradient norm) of every update."""
    found = re.findall(r"loss ([\d.]+), gradient norm ([\d.]+)", text)
    return [(float(loss), float(norm)) for loss, norm in found]
