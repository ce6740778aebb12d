"""FSDP2 with a DCP save, a pipeline and tensor parallelism on two ranks: the same bits, without the compiler."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PLAIN = ROOT / "tools" / "plain"
SHARED = ROOT / "src" / "trainer" / "bench" / "plain"


def ranks(folder: Path, script: str, layers: str) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Of both ranks: the losses, and which modules and overlays there were."""
    folder.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{SHARED}",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    words = [SHARED / "spawn.py", "2", HERE / "sharded.py", PLAIN / f"{script}.py", folder, layers]
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
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
def test_bit_for_bit_without_the_compiler(tmp_path: Path, script: str, used: set[str]) -> None:
    plain, before = ranks(tmp_path / "plain", script, "gc")
    fast, after = ranks(tmp_path / "fast", script, "gc,overlays")
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
