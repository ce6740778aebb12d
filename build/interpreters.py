"""The Pythons that code is made for, and clean processes of them."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from build.errors import BuildError
from build.uv import find_uv

WORKER = Path(__file__).with_name("worker.py")
OLDEST = (3, 11)


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
    """One for each request ("3.12", or the path of an interpreter); for none, the running one. BuildError."""
    found: dict[bytes, Interpreter] = {}
    for request in requests or [sys.executable]:
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
    asked = subprocess.run(
        [find_uv(), "python", "find", "--no-project", request], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        raise BuildError(
            f"uv finds no Python {request}", f"uv python install {request}, or give the interpreter's path"
        )
    return asked.stdout.strip()


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
