"""CUDA's Python bindings: there when they are wanted, and not before."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(find_spec("cuda") is None, reason="this environment has no cuda.bindings")

RECORD = """
    import torch
    from trainer_boot import snapshot
    snapshot.make()
"""

START = """
    import sys, threading
    from types import ModuleType
    from trainer_boot import layers
    parts = layers.put_on(["snapshot", "overlays"])[-1]
    import torch
    states = [each["state"] for each in parts["overlays"] if each["name"].startswith("CUDA's")]
    driver = sys.modules["cuda.bindings.driver"]
    print(states, type(driver).__name__, "cuda.pathfinder" in sys.modules)
"""

TOUCH = """
    from torch.cuda import _utils
    found = []
    def ask():
        found.append(_utils._cuda_bindings_driver.CUresult.CUDA_SUCCESS)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    import cuda.bindings.driver
    print(_utils._HAS_CUDA_BINDINGS, cuda.bindings.driver is driver is _utils._cuda_bindings_driver)
    same = found[0] is driver.CUresult.CUDA_SUCCESS
    print(type(driver) is ModuleType, len(set(found)), same, type(driver.__spec__.loader).__name__)
    print(hasattr(driver, "nothing"), hasattr(sys.modules["cuda.bindings.runtime"], "cudaError_t"))
"""

FORKED = """
    import os
    sys.stdout.flush()
    if os.fork() == 0:
        import torch._dynamo
        print(type(driver) is ModuleType, type(sys.modules["cuda.bindings.runtime"]) is ModuleType)
        sys.stdout.flush()
        os._exit(0)
    assert os.wait()[1] == 0
"""


def run(text: str, folder: Path) -> list[str]:
    """What the program prints, in lines. The snapshots' folder is `folder`."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TRAINER_SNAPSHOT_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", text], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_they_run_at_the_first_question_once_for_all_threads(tmp_path: Path) -> None:
    cache = tmp_path / "snapshots"
    start = dedent(START)
    assert run(start, cache) == ["['aside', 'aside'] module True"]  # nobody has seen them load
    run(dedent(RECORD), cache)
    assert run(start + dedent(FORKED) + dedent(TOUCH), cache) == [
        "['on', 'on'] Waiting False",
        "True True",  # of the child, which wants the compiler
        "True True",
        "True 1 True ExtensionFileLoader",
        "False True",
    ]
