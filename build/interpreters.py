"""The Pythons that code is made for, and clean processes of them."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from build.errors import BuildError
from build.uv import find_uv

WORKER = Path(__file__).with_name("worker.py")
OLDEST = (3, 11)
SUPPORTED = ("3.11", "3.12", "3.13")
"""What `--python all` stands for."""


@dataclass(frozen=True)
class Interpreter:
    """One of them."""

    executable: str
    version: str
    """Its minor version: "3.11"."""
    magic: bytes
    """The number that its bytecode carries."""
    identity: str
    """All that the code it makes may depend on."""


def find_interpreters(requests: list[str]) -> tuple[Interpreter, ...]:
    """One for each request: "3.12", the path of an interpreter, or "all" that are supported; for none, the running one.

    BuildError for one that is not there.
    """
    found: dict[bytes, Interpreter] = {}
    wanted = [name for request in requests for name in (SUPPORTED if request == "all" else (request,))]
    for request in wanted or [sys.executable]:
        interpreter = _describe(_locate(request), request)
        found.setdefault(interpreter.magic, interpreter)
    return tuple(found.values())


def run_clean(executable: str, *arguments: str, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """A process that nothing of this one's environment reaches: no site-packages, variables, warnings or hash seed."""
    environment = {"PYTHONHASHSEED": "0"}
    if "LD_LIBRARY_PATH" in os.environ:  # some interpreters do not start without it
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    command = [executable, "-s", "-S", "-P", "-B", "-W", "ignore", *arguments]
    return subprocess.run(command, input=data, capture_output=True, env=environment, check=False)


def _locate(request: str) -> str:
    if request == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    if os.sep in request:
        return request
    found = _found_by_uv(request) or _found_on_path(request) or _found_by_pyenv(request)
    if found is None:
        raise BuildError(
            f"there is no Python {request} here", f"uv python install {request}, or give the interpreter's path"
        )
    return found


def _found_by_uv(request: str) -> str | None:
    try:
        command = [find_uv(), "python", "find", "--no-project", request]
    except BuildError:
        return None
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if asked.returncode else asked.stdout.strip()


def _found_on_path(request: str) -> str | None:
    found = shutil.which(f"python{request}")
    # pyenv's shims are there for versions too that they refuse to start
    works = found is not None and run_clean(found, "-c", "").returncode == 0
    return found if works else None


def _found_by_pyenv(request: str) -> str | None:
    """The newest of that minor version, whether or not pyenv's shims are told to show it."""
    folder = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [path / "bin" / "python3" for path in folder.glob(f"{request}.*")]
    whole = [path for path in found if path.parent.parent.name.rpartition(".")[2].isdigit() and path.is_file()]
    newest = max(whole, key=lambda path: int(path.parent.parent.name.rpartition(".")[2]), default=None)
    return None if newest is None else str(newest)


def _describe(executable: str, request: str) -> Interpreter:
    fix = "give --python a version (3.12) or the path of an interpreter"
    try:
        answer = run_clean(executable, str(WORKER), "--describe")
    except OSError as error:
        raise BuildError(f"{executable} does not start: {error.strerror}", fix) from None
    lines = answer.stdout.decode().splitlines()
    if answer.returncode or len(lines) != 4:
        raise BuildError(f"{executable} is no Python {'.'.join(map(str, OLDEST))} or newer", fix)
    version, magic, implementation, full = lines
    if tuple(map(int, version.split("."))) < OLDEST:
        raise BuildError(f"{request} is Python {version}; the trainer needs 3.11 or newer", fix)
    if implementation != "cpython":
        raise BuildError(f"{executable} is {implementation}; code is made for CPython only", fix)
    return Interpreter(executable, version, bytes.fromhex(magic), f"{implementation} {full}")
