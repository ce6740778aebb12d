"""The `.dist-info` of the project itself, written by the build backend that its pyproject.toml declares."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.metadata import InvalidMetadata, Metadata
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from build.errors import BuildError
from build.lock import RELOCK, Lock, Package
from build.settings import read_pyproject
from build.wheel_files import INSTALLERS_OWN

BACKEND = Path(__file__).with_name("backend.py")
DEFAULT = {"requires": ["setuptools"], "build-backend": "setuptools.build_meta"}
"""Of a project that declares none (PEP 517)."""
SYNC = "Run `uv sync`, then build again."


def metadata_files(root: Path, locked: Package, lock: Lock | None = None) -> Iterator[tuple[str, bytes, str]]:
    """Yield (path, bytes, distribution) of METADATA, WHEEL, entry_points.txt and the licences.

    `locked` is the project in the lock; `lock`, where given, decides the version of the backend. BuildError where the
    backend is not installed or fails, where its metadata are invalid, or where the lock was made for another version.
    """
    system: dict[str, Any] = read_pyproject(root / "pyproject.toml").get("build-system") or DEFAULT
    _check_backend(system, lock)
    folder, files = _written(root, system)
    metadata = _judged(files.get("METADATA", b""))
    if canonicalize_name(metadata.name) != locked.name:
        raise BuildError(f"pyproject.toml is of {metadata.name}, uv.lock was made for {locked.name}", RELOCK)
    if locked.version is not None and Version(locked.version) != metadata.version:
        raise BuildError(
            f"pyproject.toml says {metadata.name} {metadata.version}, uv.lock was made for {locked.version}", RELOCK
        )
    for name in metadata.license_files or []:
        if f"licenses/{name}" not in files:
            files[f"licenses/{name}"] = _licence(root, name)
    for inside, data in sorted(files.items()):
        yield f"{folder}/{inside}", data, locked.name


def _check_backend(system: dict[str, Any], lock: Lock | None) -> None:
    """Refuse a backend that is not installed, or another release of it than the locked one: it may write otherwise."""
    for text in system.get("requires", []):
        try:
            wanted = Requirement(text)
        except InvalidRequirement as error:
            raise BuildError(
                f"[build-system] of pyproject.toml has an invalid requirement: {error}", "Correct it there."
            ) from None
        if wanted.marker is not None and not wanted.marker.evaluate():
            continue
        try:
            found = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            raise BuildError(
                f"the build backend is not installed: [build-system] of pyproject.toml requires {text}", SYNC
            ) from None
        if not wanted.specifier.contains(found, prereleases=True):
            raise BuildError(
                f"[build-system] of pyproject.toml requires {text}, and {found} is installed",
                f"Lock a release that fits in the group `dev`. {SYNC}",
            )
        locked = [package.version for package in lock.versions(wanted.name)] if lock else []
        if locked and found not in locked:
            raise BuildError(f"{wanted.name} {found} is installed, and {locked[0]} is locked", SYNC)


def _written(root: Path, system: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """Return the name of the `.dist-info` that the backend writes, and its files."""
    with tempfile.TemporaryDirectory() as temporary:
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        done = subprocess.run(
            [sys.executable, "-P", str(BACKEND), temporary],
            input=json.dumps(system),
            cwd=root,
            env={**os.environ, "PATH": programs, "SOURCE_DATE_EPOCH": "315532800", "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BuildError(
                f"the build backend {system.get('build-backend')} cannot write the project's metadata: "
                f"{_reason(done.stderr)}",
                "Correct [project] and [build-system] in pyproject.toml.",
            )
        name = done.stdout.strip().splitlines()[-1]
        place = Path(temporary, name)
        files = {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    return name, {path: data for path, data in files.items() if path not in INSTALLERS_OWN}


def _reason(text: str) -> str:
    """Return what a backend said, without the traceback of the hook's caller."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = next((number for number, line in enumerate(lines) if line.lower().startswith("error")), None)
    if start is None:
        return lines[-1] if lines else "it said nothing"
    told = [line for line in lines[start:] if not line.startswith(("Traceback", "File ", "subprocess."))]
    return " ".join(told[:4]).removeprefix("error: ")


def _judged(data: bytes) -> Metadata:
    try:
        return Metadata.from_email(data, validate=True)
    except (ExceptionGroup, InvalidMetadata) as error:
        first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
        raise BuildError(
            f"the project's metadata are invalid: {first}", "Correct [project] in pyproject.toml."
        ) from None


def _licence(root: Path, name: str) -> bytes:
    try:
        return (root / name).read_bytes()
    except OSError as error:
        raise BuildError(
            f"cannot read the licence {root / name}: {error.strerror}", "Correct `license-files` in pyproject.toml."
        ) from None
