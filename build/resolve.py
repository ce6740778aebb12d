"""What of the lock travels in the file, and what stays in the environment."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.tags import Tag
from packaging.utils import BuildTag, InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from build import markers
from build.errors import BuildError
from build.interpreters import OLDEST
from build.lock import Artifact, Edge, Lock, Package
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

        A list of objects: name, version, marker, kind, hashes, index where it is not the usual one, and url where it
        comes from none.
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
            if each.package.source.kind == "url":
                entry["url"] = each.package.source.location
            entries.append(entry)
        return json.dumps(entries, separators=(",", ":"), sort_keys=True)


def resolve(
    lock: Lock, root: str | None = None, *, extras: Iterable[str] = (), groups: Iterable[str] = ()
) -> Resolution:
    """Walk from the root (None: the project in the lock's folder) over everything that it needs on any platform.

    Bundled is what has one portable wheel and is reached without passing through something native; what only native
    packages need is theirs to bring. A name that the lock splits into several versions stays in the environment too,
    since one file cannot hold two versions of a module; so does what the settings name. Extras and groups of the root
    count only where asked for; those that an edge asks for always do. BuildError for an extra, a group or a package
    that the lock does not have.
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
    conditions, active = _conditions(lock, starts, active)
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


def portable_wheel(package: Package) -> Artifact | None:
    """Return the one wheel that every supported Python on every platform installs; None where there is no such one.

    That a wheel is pure Python is not enough: one that is tagged for a single Python (`cp311-none-any`) serves no other
    version, and of two that fit, different versions may choose differently.
    """
    found: list[tuple[str, BuildTag, Artifact]] = []
    for wheel in package.wheels:
        try:
            _, _, build, tags = parse_wheel_filename(wheel.filename)
        except InvalidWheelFilename as error:
            what = f"uv.lock has a wheel of {package.label} whose name is invalid: {error}"
            raise BuildError(what, f"Run `uv lock --upgrade-package {package.name}`, then build again.") from None
        serving = {_serves(tag) for tag in tags} - {"none"}
        if "some" in serving:
            return None
        if serving:
            found.append(("+".join(sorted(tag.interpreter for tag in tags)), build, wheel))
    if len({interpreters for interpreters, _, _ in found}) != 1:
        return None
    return max(found, key=lambda each: (each[1][0] if each[1] else -1, each[1][1] if each[1] else ""))[2]


def _serves(tag: Tag) -> str:
    """Return which of the supported Pythons install a wheel with this tag: all, some, or none."""
    name = tag.interpreter
    if tag.platform == "any" and tag.abi == "none":
        if name == "py3" or (name.startswith("py3") and name[3:].isdigit() and int(name[3:]) <= OLDEST[1]):
            return "all"
        if name.startswith(("py2", "cp2")):
            return "none"
    return "some"


def _conditions(
    lock: Lock, starts: list[Edge], active: frozenset[str]
) -> tuple[list[tuple[Package, Condition]], frozenset[str]]:
    """Return when each package is needed, and `active` with the extras that were reached.

    Conditions grow along the edges until nothing changes, so that cycles end. Where extras conflict, uv asks in markers
    whether the extra of some package is in use; one that an edge asks for is, from that edge on and everywhere else.
    """
    while True:
        found: dict[tuple[int, str | None], tuple[Node, Condition]] = {}
        waiting: list[tuple[Condition, Edge]] = [(markers.ALWAYS, edge) for edge in starts]
        while waiting:
            above, edge = waiting.pop()
            condition = markers.both(above, markers.parse(edge.marker, active | _asked(edge)))
            if not condition:
                continue
            for package, extra in _targets(lock, edge):
                key = (id(package), extra)
                before = found[key][1] if key in found else markers.NEVER
                after = markers.either(before, condition)
                if after != before:
                    found[key] = ((package, extra), after)
                    waiting.extend((after, below) for below in _needs(package, extra))
        reached = active | {_name("extra", package.name, extra) for (package, extra), _ in found.values() if extra}
        if reached == active:
            needed = [(package, condition) for (package, extra), condition in found.values() if extra is None]
            return needed, active
        active = reached


def _bundled(lock: Lock, project: Package, starts: list[Edge], active: frozenset[str]) -> frozenset[int]:
    """Return the identities of the packages to bundle."""
    seen: set[tuple[int, str | None]] = set()
    waiting = list(starts)
    while waiting:
        edge = waiting.pop()
        if not markers.parse(edge.marker, active | _asked(edge)):
            continue
        for package, extra in _targets(lock, edge):
            if (package is project or _travels(lock, package)) and (id(package), extra) not in seen:
                seen.add((id(package), extra))
                waiting.extend(_needs(package, extra))
    return frozenset(identity for identity, _ in seen)


def _travels(lock: Lock, package: Package) -> bool:
    if package.name in lock.stays or len(lock.versions(package.name)) > 1:
        return False
    return portable_wheel(package) is not None


def _targets(lock: Lock, edge: Edge) -> list[Node]:
    package = lock.find(edge)
    # an extra that the package no longer has is no error for installers either
    return [(package, None), *((package, extra) for extra in sorted(edge.extras) if extra in package.extras)]


def _needs(package: Package, extra: str | None) -> tuple[Edge, ...]:
    return package.dependencies if extra is None else package.extras[extra]


def _active(project: Package, extras: frozenset[str], groups: frozenset[str]) -> frozenset[str]:
    """Return the names under which markers ask for what was chosen: plain, and as uv writes them for conflicts."""
    return frozenset(
        {*extras, f"project-{len(project.name)}-{project.name}"}
        | {_name("extra", project.name, extra) for extra in extras}
        | {_name("group", project.name, group) for group in groups}
    )


def _asked(edge: Edge) -> frozenset[str]:
    return frozenset(_name("extra", edge.name, extra) for extra in edge.extras)


def _name(kind: str, package: str, item: str) -> str:
    return f"{kind}-{len(package)}-{package}-{item}"


def _index(lock: Lock, package: Package) -> str | None:
    usual = package.source.kind != "registry" or package.source.location == lock.default_index
    return None if usual else package.source.location


def _refuse_unknown(project: Package, what: str, names: Iterable[str]) -> None:
    for name in sorted(names):
        known = ", ".join(sorted(project.extras if what == "extra" else project.groups)) or "none"
        raise BuildError(f"{project.name} has no {what} {name!r}", f"Use one of: {known}.")
