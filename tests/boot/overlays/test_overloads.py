"""Overloads of others are checked as ever; torch's own are not read from the disk."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parent.parent.parent.parent

SCRIPT = """
    import linecache, os
    from trainer_boot import overlays
    notes = overlays.install()["overlays"]
    import torch
    print(next(note["state"] for note in notes if note["name"] == "overloads"))
    print([path for path in linecache.cache if path.endswith(("torch/functional.py", "nn/functional.py"))])

    @torch.jit._overload
    def right(number):  # noqa: F811
        # type: (int) -> int
        pass

    try:
        @torch.jit._overload
        def wrong(number):
            # type: (int) -> int
            return number
    except RuntimeError as error:
        print("Only `pass`" in str(error))

    @torch.jit._overload
    def right(number):  # noqa: F811
        # type: (float) -> float
        pass

    def right(number):  # noqa: F811
        return number + number

    @torch.jit.script
    def both(number: int, other: float):
        return right(number), right(other)

    print(both(2, 1.5))
    pooled = torch.nn.functional.max_pool1d(torch.ones(1, 1, 4), 2)
    print(pooled.shape)
    """


def test_those_of_others_are_checked(tmp_path: Path) -> None:
    place = tmp_path / "script.py"
    place.write_text(dedent(SCRIPT))
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(place)], env=environ, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["on", "[]", "True", "(4, 3.0)", "torch.Size([1, 1, 2])"]
