"""uv: the one that is there, or else the locked one, by its hash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile

from trainer_boot import trust
from trainer_boot.environment import running, wheels
from trainer_boot.environment.refused import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.environment.carried import Carried, File
    from trainer_boot.environment.running import Say
    from trainer_boot.environment.store import Store

OLDEST = (0, 5)
"""Has all that is asked of it."""


def find(carried: Carried, store: Store, say: Say, wheelhouse: str | None = None) -> str:
    """The path of uv: on PATH, beside the interpreter, in the store; or it is put into the store, from the folder of
    wheels where one is given. Refused."""
    beside = os.path.dirname(sys.executable)
    for candidate in (os.environ.get("UV"), shutil.which("uv"), shutil.which("uv", path=beside)):
        if candidate and _serves(candidate):
            return candidate
    return locked(carried, store, say, wheelhouse)


def locked(carried: Carried, store: Store, say: Say, wheelhouse: str | None = None) -> str:
    """The locked uv, in the store."""
    pin = carried.installer
    if pin is None:
        raise Refused("uv is not on PATH, and the lock has none", "Install uv and put it on PATH.")
    folder = os.path.join(store.tools, f"uv-{pin.version}")
    place = os.path.join(folder, "uv")
    if os.access(place, os.X_OK) and _is_own(folder) and _is_own(place):
        return place
    file = wheels.best(pin)
    with wheels.draft_in(store.tools) as draft:
        if wheelhouse is None:
            say(f"uv {pin.version}: fetched, since there is none on PATH")
            wheels.fetch([(pin, file)], draft, say, carried.index)
            wheelhouse = draft
        ready = os.path.join(draft, "ready")
        os.mkdir(ready, 0o755)
        _take_out(os.path.join(wheelhouse, file.name), file, os.path.join(ready, "uv"))
        shutil.rmtree(folder, ignore_errors=True)
        try:
            os.rename(ready, folder)
        except OSError:
            if not os.access(place, os.X_OK):  # another process has put it there
                raise
    return place


def _take_out(path: str, file: File, target: str) -> None:
    """The program out of its wheel, whose hash is compared first."""
    if not os.path.isfile(path):
        raise Refused(
            f"there is no uv on PATH, and {path} is not there", "Make the folder again with `env pack FOLDER`."
        )
    wheels.require_hash(path, file)
    with zipfile.ZipFile(path) as archive:
        inside = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
        with archive.open(inside) as source, open(target, "wb") as program:
            shutil.copyfileobj(source, program)
            program.flush()
            os.fsync(program.fileno())
    os.chmod(target, 0o755)


def _serves(path: str) -> bool:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=20).stdout
        return tuple(int(part) for part in said.split()[1].split(".")[:2]) >= OLDEST
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return False


def _is_own(path: str) -> bool:
    """Whether nobody else could have put a program there."""
    try:
        trust.require_own(path)
    except (trust.Untrusted, OSError):
        return False
    return True


def cache_arguments(store: Store) -> list[str]:
    """Where uv keeps what it fetched: where it always does, or in the store for a user without such a place."""
    place = os.environ.get("UV_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "uv"
    )
    folder = place
    while not os.path.isdir(folder) and folder not in ("", "/"):
        folder = os.path.dirname(folder)
    if not os.path.isabs(place) or not os.access(folder, os.W_OK | os.X_OK) or _read_only(folder):
        place = os.path.join(store.place, "cache")
        return ["--cache-dir", place]
    try:
        same = os.stat(folder).st_dev == os.stat(store.place).st_dev
    except OSError:
        same = True
    # without being asked to, uv warns at length that it can't link across file systems
    return [] if same or "UV_LINK_MODE" in os.environ else ["--link-mode", "copy"]


def _read_only(folder: str) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def run(program: str, words: list[str], store: Store, folder: str, say: Say | None, variables: dict[str, str]) -> None:
    """Runs a command of uv in `folder`. Refused with the cause, as far as its words tell it."""
    status, text = running.run([program, *words], folder, variables, say, say)
    if status:
        raise wheels.told(text, "uv", store.place)
