"""What the file carries of the lock to check and to make environments: no more than that, and the same text for the
same lock.

A variant is an extra of the project that conflicts with another one (`[tool.uv] conflicts`): another build of torch,
from an index of its own. Other extras may be added to any variant. Of each package there are the files that one of
MACHINES under Linux can install; the lock's other files, packages and groups stay behind.
"""

import hashlib
import json
from collections.abc import Iterator

from packaging.utils import parse_wheel_filename

from build.errors import BuildError
from build.interpreters import OLDEST
from build.lock import RELOCK, Artifact, Lock, Package
from build.resolve import BUNDLED, ENVIRONMENT, Requirement, Resolution, resolve

MACHINES = ("x86_64", "aarch64")
INSTALLER = "uv"
FORMAT = 1

Row = list[int | str | None]
"""Number of a package, and when it is needed."""


def environment_json(lock: Lock, root: str | None = None) -> bytes:
    """The member of the file that `trainer env` reads.

    `packages`: name, version, kind, index (None: the usual one), files (name, hash, size). `sets`: by variant ("": the
    usual one) and extra ("" for none), the packages by number with their markers; those of an extra come on top.
    `installer`: number of uv, None where it is not locked. `index`: the usual one where the project declares it.
    `digest`: of what decides an environment. BuildError.
    """
    project = lock.root(root)
    usual = resolve(lock, root)
    table = _Table({id(package) for package in usual.bundled})
    variants = sorted(extra for extra in project.extras if (project.name, extra) in lock.conflicting)
    plain = sorted(set(project.extras) - set(variants))
    sets = {variant: _set(table, lock, root, variant, plain) for variant in ["", *variants]}
    decisive: dict[str, object] = {
        "format": FORMAT,
        "requires_python": lock.requires_python,
        "supported": list(lock.supported),
        "packages": list(table.rows),
        "sets": sets,
    }
    digest = hashlib.sha256(_text(decisive)).hexdigest()
    installer = lock.versions(INSTALLER)
    number = table.number(Requirement(installer[0], ENVIRONMENT, None, None)) if len(installer) == 1 else None
    return _text(
        {**decisive, "packages": table.rows, "installer": number, "digest": digest, "index": lock.declared_index}
    )


class _Table:
    """Packages by number, each once."""

    def __init__(self, bundled: set[int]) -> None:
        self.rows: list[list[object]] = []
        self._bundled = bundled
        self._numbers: dict[int, int] = {}

    def number(self, requirement: Requirement) -> int:
        package = requirement.package
        if id(package) not in self._numbers:
            kind = BUNDLED if id(package) in self._bundled else ENVIRONMENT
            files = [[file.filename, file.hash, file.size] for file in _files(package)]
            self.rows.append([package.name, package.version, kind, requirement.index, files])
            self._numbers[id(package)] = len(self.rows) - 1
        return self._numbers[id(package)]


def _set(table: _Table, lock: Lock, root: str | None, variant: str, plain: list[str]) -> dict[str, list[Row]]:
    chosen = [variant] if variant else []
    base = _rows(table, resolve(lock, root, extras=chosen))
    found = {"": base}
    for extra in plain:
        rows = _rows(table, resolve(lock, root, extras=[*chosen, extra]))
        found[extra] = [row for row in rows if row not in base]
    return found


def _rows(table: _Table, resolution: Resolution) -> list[Row]:
    return [[table.number(requirement), requirement.marker] for requirement in resolution.requirements]


def _files(package: Package) -> Iterator[Artifact]:
    """Wheels for the machines that are served; where the lock has the source only, that, so that it can be named."""
    found = sorted((wheel for wheel in package.wheels if _serves(wheel)), key=lambda wheel: wheel.filename)
    if package.source.kind != "registry" and not found:
        raise BuildError(
            f"{package.label} comes from {package.source.kind} {package.source.location}: it has no hash",
            f"lock a released wheel of it, then {RELOCK}",
        )
    yield from found or ([package.sdist] if package.sdist else [])


def _serves(wheel: Artifact) -> bool:
    return any(
        _fits_machine(tag.platform) and _fits_python(tag.interpreter, tag.abi)
        for tag in parse_wheel_filename(wheel.filename)[3]
    )


def _fits_machine(platform: str) -> bool:
    return platform == "any" or ("linux" in platform and platform.endswith(MACHINES))


def _fits_python(interpreter: str, abi: str) -> bool:
    if interpreter.startswith("py"):
        return interpreter[2] == "3"
    minor = interpreter.removeprefix("cp3")
    return minor.isdigit() and (int(minor) >= OLDEST[1] or abi == "abi3")


def _text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
