"""What of the lock travels in the file, and what stays in the environment."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from build import markers
from build.errors import BuildError
from build.lock import Edge, Lock, Package
from build.markers import Condition

BUNDLED = "bundled"
ENVIRONMENT = "environment"

Node = tuple[Package, str | None]
"""A package, or one extra of it."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One package that a run needs somewhere."""

    package: Package
    kind: str
    """`BUNDLED` or `ENVIRONMENT`."""
    marker: str | None
    """On which platforms and Pythons; None: on all."""
    index: str | None
    """The registry that it comes from, where that is not the lock's usual one."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """All requirements, sorted by name and version, without the project itself."""

    root: Package
    requirements: tuple[Requirement, ...]

    @property
    def bundled(self) -> tuple[Package, ...]:
        """The packages whose files travel, whatever platform they are for."""
        return tuple(each.package for each in self.requirements if each.kind == BUNDLED)

    def requirements_json(self) -> str:
        """The requirements as the file carries them for its start: the same text for the same lock.

        A list of objects: name, version, marker, kind, hashes, and index where it is not the usual one.
        """
        entries = []
        for each in self.requirements:
            entry: dict[str, object] = {
                "name": each.package.name,
                "version": each.package.version,
                "marker": each.marker,
                "kind": each.kind,
                "hashes": list(each.package.hashes),
            }
            if each.index is not None:
                entry["index"] = each.index
            entries.append(entry)
        return json.dumps(entries, separators=(",", ":"), sort_keys=True)


def resolve(
    lock: Lock, root: str | None = None, *, extras: Iterable[str] = (), groups: Iterable[str] = ()
) -> Resolution:
    """Walks from the root (None: the project in the lock's folder) over everything that it needs on any platform.

    Bundled is what is pure Python and reached without passing through something native; what only native packages need
    is theirs to bring. A name that the lock splits into several versions stays in the environment too: one file cannot
    hold two versions of a module. Extras and groups of the root count only where asked for; those that an edge asks
    for always do. BuildError for an extra, a group or a package that the lock does not have.
    """
    project = lock.root(root)
    wanted = frozenset(canonicalize_name(extra) for extra in extras)
    chosen = frozenset(canonicalize_name(group) for group in groups)
    _refuse_unknown(project, "extra", wanted - set(project.extras))
    _refuse_unknown(project, "group", chosen - set(project.groups))
    starts = list(project.dependencies)
    for name in sorted(wanted):
        starts += project.extras[name]
    for name in sorted(chosen):
        starts += project.groups[name]
    active = _active(project, wanted, chosen)
    conditions = _conditions(lock, starts, active)
    travelling = _bundled(lock, project, starts, active)
    requirements = [
        Requirement(
            package,
            BUNDLED if id(package) in travelling else ENVIRONMENT,
            markers.text(condition),
            _index(lock, package),
        )
        for package, condition in conditions
        if package is not project
    ]
    requirements.sort(key=lambda each: (each.package.name, each.package.version or ""))
    return Resolution(project, tuple(requirements))


def is_pure(package: Package) -> bool:
    """True where every wheel serves every platform. Without wheels nobody can say, and nothing can be bundled."""
    if not package.wheels:
        return False
    try:
        tags = [tag for wheel in package.wheels for tag in parse_wheel_filename(wheel.filename)[3]]
    except InvalidWheelFilename as error:
        what = f"uv.lock has a wheel of {package.label} whose name is not one: {error}"
        raise BuildError(what, f"run `uv lock --upgrade-package {package.name}`") from None
    return all(tag.platform == "any" and tag.abi == "none" and tag.interpreter.startswith("py") for tag in tags)


def _conditions(lock: Lock, starts: list[Edge], active: frozenset[str]) -> list[tuple[Package, Condition]]:
    """When each package is needed: grown along the edges until nothing changes, so that cycles end."""
    found: dict[tuple[int, str | None], tuple[Node, Condition]] = {}
    waiting: list[tuple[Condition, Edge]] = [(markers.ALWAYS, edge) for edge in starts]
    while waiting:
        above, edge = waiting.pop()
        condition = markers.both(above, markers.parse(edge.marker, active))
        if not condition:
            continue
        for package, extra in _targets(lock, edge):
            key = (id(package), extra)
            before = found[key][1] if key in found else markers.NEVER
            after = markers.either(before, condition)
            if after != before:
                found[key] = ((package, extra), after)
                waiting.extend((after, below) for below in _needs(package, extra))
    return [(package, condition) for (package, extra), condition in found.values() if extra is None]


def _bundled(lock: Lock, project: Package, starts: list[Edge], active: frozenset[str]) -> frozenset[int]:
    """Identities of the packages to bundle."""
    seen: set[tuple[int, str | None]] = set()
    waiting = list(starts)
    while waiting:
        edge = waiting.pop()
        if not markers.parse(edge.marker, active):
            continue
        for package, extra in _targets(lock, edge):
            portable = package is project or (len(lock.versions(package.name)) == 1 and is_pure(package))
            if portable and (id(package), extra) not in seen:
                seen.add((id(package), extra))
                waiting.extend(_needs(package, extra))
    return frozenset(identity for identity, _ in seen)


def _targets(lock: Lock, edge: Edge) -> list[Node]:
    package = lock.find(edge)
    # an extra that the package no longer has is no error for installers either
    return [(package, None), *((package, extra) for extra in sorted(edge.extras) if extra in package.extras)]


def _needs(package: Package, extra: str | None) -> tuple[Edge, ...]:
    return package.dependencies if extra is None else package.extras[extra]


def _active(project: Package, extras: frozenset[str], groups: frozenset[str]) -> frozenset[str]:
    """The names under which markers ask for what was chosen: plain, and as uv writes them where extras conflict."""
    size = len(project.name)
    return frozenset(
        {*extras}
        | {f"extra-{size}-{project.name}-{extra}" for extra in extras}
        | {f"group-{size}-{project.name}-{group}" for group in groups}
    )


def _index(lock: Lock, package: Package) -> str | None:
    usual = package.source.kind != "registry" or package.source.location == lock.default_index
    return None if usual else package.source.location


def _refuse_unknown(project: Package, what: str, names: Iterable[str]) -> None:
    for name in sorted(names):
        known = ", ".join(sorted(project.extras if what == "extra" else project.groups)) or "none"
        raise BuildError(f"{project.name} has no {what} {name!r}", f"it has: {known}")
