"""Where uv is."""

import os
import shutil
import sys
from pathlib import Path

from build.errors import BuildError

ROOT = Path(__file__).resolve().parent.parent


def find_uv() -> str:
    """The uv that runs us, else the one on PATH, beside the interpreter, in ~/.local/bin, or in .uv of this clone."""
    places = [Path(sys.executable).parent, Path.home() / ".local" / "bin", ROOT / ".uv" / "bin"]
    found = (
        shutil.which(os.environ.get("UV") or "uv")
        or shutil.which("uv")
        or shutil.which("uv", path=os.pathsep.join(map(str, places)))
    )
    if found is None:
        raise BuildError("there is no uv", "start the build by `sh tools/uv run python -m build`, which brings one")
    return found
