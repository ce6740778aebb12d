"""Is this torch, and is each module that shall wait, the one that it was proven for?"""

import os
import sys
from types import ModuleType

from trainer_boot.lazy.sources import SOURCES
from trainer_boot.lazy.table import BUILDS


def unknown_build(version: ModuleType) -> str:
    """Why nothing may wait in this build of torch, by its `torch.version`; or ""."""
    full = str(version.__version__)
    commit = str(getattr(version, "git_version", None) or "unknown")
    if BUILDS.get(".".join(full.split(".")[:2])) == commit:
        return ""
    return f"proven on torch {', '.join(BUILDS)} as it was published; this is {full}, commit {commit[:12]}"


def unknown_source(root: str, check: str) -> str:
    """Why nothing may wait with the sources in torch's folder `root`, or beside it; or "". `check`: fast (their sizes;
    from the snapshot where it has them) or full (their digests)."""
    serving = sys.modules.get("trainer_boot.snapshot_serving")
    finder = serving.running() if serving and check != "full" else None
    recorded = finder.modules if finder else {}
    for name, (size, digest) in SOURCES.items():
        entry = recorded.get(name)
        try:
            if check == "full":
                found = _digest(_path(root, name))
                if found != digest:
                    return f"{name} is not the known one; its digest is {found}"
                continue
            there = entry[6] if entry else os.stat(_path(root, name)).st_size
        except OSError as error:
            return f"the source of {name}: {error.strerror}"
        if there != size:
            return f"{name} is not the known one; its source has {there} bytes"
    return ""


def _path(root: str, name: str) -> str:
    folder = f"{os.path.dirname(root)}/{name.replace('.', '/')}"
    return f"{folder}/__init__.py" if os.path.isdir(folder) else f"{folder}.py"


def _digest(path: str) -> str:
    from hashlib import sha256

    with open(path, "rb") as file:
        return sha256(file.read()).hexdigest()[:16]
