"""Asks uv whether uv.lock still is the lock of pyproject.toml. Only uv knows its own rules of that."""

import os
import subprocess
import sys
from pathlib import Path

from build.cache import Cache, key_of
from build.errors import BuildError
from build.lock import LOCAL, RELOCK, Lock
from build.uv import find_uv

KEPT = ("UV_CACHE_DIR",)
"""The variables of uv's that count here: a mirror or an option of the moment makes a lock no older."""
DECIDING = ("pyproject.toml", "setup.py", "setup.cfg")
"""The files of a local package that say what it needs."""


def require_fresh(root: Path, lock: Lock, cache: Path) -> None:
    """Refuse a lock that does not fit the pyproject.toml beside it (BuildError).

    uv answers in 20 ms and without a network; `cache`, a folder, keeps that it said yes for as long as neither file
    changes.
    """
    store = Cache(cache)
    folders = [root, *(root / each.source.location for each in lock.packages if each.source.kind in LOCAL)]
    files = [folder / name for folder in folders for name in DECIDING if (folder / name).is_file()]
    key = key_of(
        "fresh", lock.digest, *(part for file in files for part in (str(file.relative_to(root)), file.read_bytes()))
    )
    if store.get(key) is not None:
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV_") or name in KEPT}
    # nor do the user's own settings
    environment |= {"XDG_CONFIG_HOME": os.devnull, "XDG_CONFIG_DIRS": os.devnull}
    command = [find_uv(), "lock", "--check", "--offline", "--no-python-downloads", "--python", sys.executable]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"uv.lock does not fit pyproject.toml{_reason(done.stderr)}", RELOCK)
    store.put(key, b"")


def _reason(text: str) -> str:
    """Return what uv found, where it says more than that the lock has to be updated."""
    cause = next((line for line in text.splitlines() if "Because " in line), "")
    return f": {cause.partition('cause: ')[2] or cause.strip()}" if cause else ""
