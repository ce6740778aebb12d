"""FSDP2 with a DCP save, a pipeline and tensor parallelism on two ranks: the same bits, without the compiler."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.beds.warm import Warm

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PLAIN = ROOT / "tools" / "plain"
SHARED = ROOT / "src" / "trainer" / "bench" / "plain"


@pytest.fixture(scope="module")
def begun() -> Iterator[dict[str, Warm]]:
    """By layers: a process that ranks are forked from once torch is imported."""
    made = {
        layers: Warm(f"from tests.boot.overlays import sharded; sharded.begin({layers!r})", OMP_NUM_THREADS="1")
        for layers in ("gc", "gc,overlays")
    }
    yield made
    for each in made.values():
        each.close()


def ranks(begun: Warm, folder: Path, script: str) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Of both ranks: the losses, and which modules and overlays there were."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{SHARED}",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
    }
    words = [str(HERE / "sharded.py"), str(PLAIN / f"{script}.py"), str(folder)]
    with open(folder / "printed", "wb") as printed:
        streams = {"stdout": printed.fileno(), "stderr": printed.fileno()}
        started = [begun.start(words, cwd=ROOT, env={**environment, "RANK": str(rank)}, **streams) for rank in (0, 1)]
        statuses = [rank.wait(100) for rank in started]
    assert statuses == [0, 0], (folder / "printed").read_text()
    losses = [(folder / f"rank-{rank}.txt").read_text().split()[1:] for rank in (0, 1)]
    return losses, [json.loads((folder / f"start-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize(
    ("script", "used"),
    [
        ("dcp", {"FSDP's hooks", "names in state dictionaries", "submeshes", "fake tensors", "symbolic shapes"}),
        ("pipeline", {"schedules", "symbolic shapes"}),
        ("tensor", {"operators in Python", "fake tensors", "symbolic shapes"}),
    ],
)
def test_bit_for_bit_without_the_compiler(begun: dict[str, Warm], tmp_path: Path, script: str, used: set[str]) -> None:
    plain, before = ranks(begun["gc"], tmp_path / "plain", script)
    fast, after = ranks(begun["gc,overlays"], tmp_path / "fast", script)
    assert fast == plain
    assert len(plain[0]) == 2
    for slow, quick in zip(before, after, strict=True):
        assert {"torch._dynamo", "sympy"} <= set(slow["modules"])
        assert not {"torch._dynamo", "sympy"} & set(quick["modules"])
        assert len(quick["modules"]) < len(slow["modules"]) - 700
        aside = {name for name, state in quick["overlays"].items() if state == "aside"}
        assert aside <= {"CUDA's driver", "CUDA's runtime"}, aside  # without a snapshot
        assert used <= {name for name, state in quick["overlays"].items() if state == "on"}
    if script == "dcp":
        saved = [sorted(path.name for path in (tmp_path / way / "checkpoint").iterdir()) for way in ("plain", "fast")]
        assert saved[0] == saved[1] != []
