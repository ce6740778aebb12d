"""Training is the same bit for bit, and the compiler comes only when it is wanted."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.beds.warm import warm

HERE = Path(__file__).parent


@cache
def flow(start: str, kind: str) -> tuple[Any, ...]:
    """Losses, weights, big modules that were imported by training, the overlays' states before and reasons after. Each
    is a process of its own, forked after such a start."""
    begun = warm(f"from tests.boot.overlays import flows; flows.begin({start!r})", OMP_NUM_THREADS="1")
    done = begun.run([str(HERE / "flows.py"), kind], cwd=HERE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("kind", ["ddp-muon", "compile-sgd"])
def test_bit_for_bit_without_the_compiler(kind: str) -> None:
    plain, fast = flow("plain", kind), flow("fast", kind)
    assert fast[:2] == plain[:2]
    # else nothing was saved, or there was nothing to save
    assert plain[2] == ["torch._dynamo", "sympy"]
    assert fast[2] == []
    states, reasons = fast[3:5]
    aside = {name for name, state in states.items() if state == "aside"}
    assert aside <= {"CUDA's driver", "CUDA's runtime"}, reasons  # without a snapshot
    expected = {"disabled functions", "operators' source", "optimizers' steps", "torch.load", "fake tensors"}
    assert expected < {name for name, state in states.items() if state == "on"}
    if kind.startswith("compile-"):
        # the compiler found torch as its authors wrote it
        assert {why for name, why in reasons.items() if name not in aside} == {"torch._dynamo is wanted"}
        assert fast[5] == plain[5]
