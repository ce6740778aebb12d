"""Each overlay is on where torch is the known one, aside where it is another, and gone once the compiler is wanted."""

import json
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainer_boot import overlays
from trainer_boot.overlays import disabled, fake, known, recompute, reducer_mode, sharded, symbols

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def told() -> list[Any]:
    """What `taken_back.py` prints."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2] / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(HERE / "taken_back.py")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


# but for those that need a snapshot (test_bindings)
@pytest.mark.parametrize("name", [each.name for each in overlays._all() if not each.name.startswith("CUDA's")])
def test_is_on(told: list[Any], name: str) -> None:
    before, early, *_ = told
    assert before[name] == ["on", ""]
    assert early == []


def test_is_used(told: list[Any]) -> None:
    changed, replaced = told[2:4]
    assert "Optimizer.zero_grad keeps itself" in changed
    assert {"torch._compile._disable_dynamo", "torch._prims_common.elementwise_dtypes"} <= set(changed)
    assert "torch.distributed.pipelining.schedules.OptimizedModule" in replaced
    assert "torch.distributed.tensor._ops._math_ops.guard_or_false" in replaced


def test_leaves_no_trace_when_the_compiler_is_wanted(told: list[Any]) -> None:
    after, changed, replaced, real = told[4:]
    assert set(after.values()) == {"aside"}
    assert changed == []
    assert replaced == []
    assert real == ["module", True, True, True]


def changed(*arguments: object) -> object:
    """What a function of another torch does."""
    return arguments


def module(**kinds: list[str]) -> ModuleType:
    """Of functions, by the name of the class that has them ("_" for none), all of another torch."""
    made = ModuleType("torch.somewhere")
    for kind, functions in kinds.items():
        place = dict.fromkeys(functions, changed)
        vars(made).update(place if kind == "_" else {kind: type(kind, (), place)})
    return made


@pytest.mark.parametrize(
    ("put", "given"),
    [
        (disabled.functions, module(_=["_disable_dynamo"])),
        (disabled.hooks, module(_=["_dynamo_disable"])),
        (recompute.checkpointing, module(_=["_checkpoint_without_reentrant_generator_impl"])),
        (reducer_mode.initializer, module(DistributedDataParallel=["__init__"])),
        (fake.modes, module(FakeTensorMode=["__init__", "_dispatch_impl"], FakeTensorConverter=["from_real_tensor"])),
        (fake.operators, module(_=["elementwise_dtypes", "_is_non_overlapping_and_dense_or_false"])),
        (sharded.mesh, module(DeviceMesh=["_create_sub_mesh"])),
        (sharded.state, module(_=["_get_fqns"])),
    ],
)
def test_a_changed_function_is_left_alone(put: Any, given: ModuleType) -> None:
    with pytest.raises(known.Unknown, match="not the known one"):
        put(given)
    kinds = [value for value in vars(given).values() if isinstance(value, type)]
    functions = [value for place in [given, *kinds] for value in vars(place).values() if value is changed]
    assert functions
    assert changed(1) == (1,)


@pytest.mark.parametrize("put", [symbols.deferred, sharded.schedules])
def test_a_changed_source_is_left_alone(tmp_path: Path, put: Any) -> None:
    path = tmp_path / "module.py"
    path.write_text("value = 1\n")
    loader = SourceFileLoader("module", str(path))
    spec = ModuleSpec("module", loader, origin=str(path))
    with pytest.raises(known.Unknown, match="not the known one"):
        put(spec)
    path.unlink()
    with pytest.raises(known.Unknown, match="cannot be read"):
        put(spec)
    with pytest.raises(known.Unknown, match="from nowhere"):
        put(ModuleSpec("module", None))
    assert spec.loader is loader


def test_a_torch_without_groups_has_no_meshes() -> None:
    with pytest.raises(known.Unknown, match="no groups"):
        sharded.mesh(ModuleType("torch.distributed.device_mesh"))
