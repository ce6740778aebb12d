"""uv.lock as a value: every package it can pick, with its edges, markers, extras and files."""

import hashlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from build.errors import BuildError
from build.settings import TABLE, read_pyproject, read_settings

UNDERSTOOD = 1
"""The `version` of the lock's format; a higher `revision` of it only adds."""

LOCAL = frozenset({"virtual", "editable", "directory"})
RELOCK = "Run `uv lock`, then build again."


@dataclass(frozen=True, slots=True)
class Source:
    """Where a package comes from: kind (registry, git, url, path, directory, editable or virtual) and place."""

    kind: str
    location: str


@dataclass(frozen=True, slots=True)
class Edge:
    """One thing that a package, an extra of it or a group of it needs."""

    name: str
    """Normalized."""
    version: str | None = None
    """Given where the lock has several versions of the name."""
    source: Source | None = None
    """Given where the lock has the version from several places."""
    extras: frozenset[str] = frozenset()
    """Extras asked for, normalized."""
    marker: str | None = None
    """When it is needed; None: always."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A wheel or an sdist."""

    filename: str
    hash: str | None
    """As the lock writes it ("sha256:..."); None for what is built from a folder or a repository, or is in a flat
    folder of wheels."""
    size: int | None
    url: str | None = None
    """Where the lock says that it is; `file:` for a path. None for what is built from a folder or a repository."""


@dataclass(frozen=True, slots=True)
class Package:
    """One version of one name."""

    name: str
    version: str | None
    """None where it is read from the sources (a workspace member with a dynamic version)."""
    source: Source
    dependencies: tuple[Edge, ...]
    extras: Mapping[str, tuple[Edge, ...]]
    groups: Mapping[str, tuple[Edge, ...]]
    wheels: tuple[Artifact, ...]
    sdist: Artifact | None

    @property
    def label(self) -> str:
        """Name and version for messages."""
        return f"{self.name} {self.version}" if self.version else self.name

    @property
    def hashes(self) -> tuple[str, ...]:
        """The hashes of all its files, sorted."""
        files = (*self.wheels, self.sdist) if self.sdist else self.wheels
        return tuple(sorted({file.hash for file in files if file.hash}))


@dataclass(frozen=True)
class Lock:
    """The whole file."""

    digest: str
    """SHA-256 (hex) of its bytes."""
    requires_python: str
    packages: tuple[Package, ...]
    conflicting: frozenset[tuple[str, str]] = frozenset()
    """(package, extra) of the extras that may not be chosen together with another one."""
    supported: tuple[str, ...] = ()
    """Markers of which one has to hold where the lock is used; none: it holds everywhere."""
    declared_index: str | None = None
    """The usual registry, where the project beside the lock declares it; None: the installer's own."""
    other_indexes: frozenset[str] = frozenset()
    """The registries that the project declares besides the usual one, as the lock writes them."""
    stays: frozenset[str] = frozenset()
    """Packages, by normalized name, that `environment` in [tool.trainer-build] leaves in the environment."""

    @cached_property
    def _by_name(self) -> dict[str, list[Package]]:
        names: dict[str, list[Package]] = {}
        for package in self.packages:
            names.setdefault(package.name, []).append(package)
        return names

    @cached_property
    def default_index(self) -> str | None:
        """The registry that needs no mention in a command: the declared one, or else the one that most packages come
        from and that the project does not declare as another one. As the lock writes it.
        """
        places = [package.source.location for package in self.packages if package.source.kind == "registry"]
        if self.declared_index is not None:
            return self.declared_index
        usual = [place for place in places if place not in self.other_indexes]
        return max(sorted(set(usual)), key=usual.count) if usual else None

    def versions(self, name: str) -> tuple[Package, ...]:
        """Every version of a name, in any spelling of it."""
        return tuple(self._by_name.get(canonicalize_name(name), ()))

    def root(self, name: str | None = None) -> Package:
        """The project itself: the package of this name, or else the one that lies in the lock's own folder."""
        found = self.versions(name) if name else [each for each in self.packages if _is_root(each.source)]
        if len(found) != 1:
            wanted = f"a package {name!r}" if name else "a package for the folder that it lies in"
            raise BuildError(f"uv.lock does not have {wanted}", RELOCK)
        return found[0]

    def find(self, edge: Edge) -> Package:
        """The package that an edge leads to. BuildError where there is none, or more than one."""
        found = [
            package
            for package in self._by_name.get(edge.name, ())
            if edge.version in (None, package.version) and edge.source in (None, package.source)
        ]
        if len(found) != 1:
            wanted = f"{edge.name} {edge.version}" if edge.version else edge.name
            raise BuildError(f"uv.lock asks for {wanted} and has {len(found)} packages that match", RELOCK)
        return found[0]


def read_lock(path: Path) -> Lock:
    """Reads a uv.lock. BuildError where it is absent, no TOML, of another format version, or asks for what it lacks."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BuildError(
            f"cannot read {path}: {error.strerror}", "Run `uv lock` in the folder of the project."
        ) from None
    try:
        table = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BuildError(f"{path} is not TOML: {error}", "Restore it from version control, or run `uv lock`.") from None
    if table.get("version") != UNDERSTOOD:
        raise BuildError(
            f"{path} has format version {table.get('version')!r}; this build tool reads version {UNDERSTOOD}",
            f"Lock with a release of uv that writes version {UNDERSTOOD}.",
        )
    try:
        # the first releases called the tables "distribution"
        tables = table.get("package", table.get("distribution", []))
        packages = tuple(_package(each, path.absolute().parent) for each in tables)
    except (KeyError, TypeError, AttributeError, InvalidMarker) as error:
        raise BuildError(f"{path} does not have the expected layout: {error!r}", RELOCK) from None
    declared, others = _indexes(path.with_name("pyproject.toml"))
    lock = Lock(
        hashlib.sha256(content).hexdigest(),
        table.get("requires-python", ""),
        packages,
        frozenset(_conflicting(table)),
        tuple(table.get("supported-markers", ())),
        declared,
        others,
        _staying(path.with_name("pyproject.toml"), packages),
    )
    for package in packages:
        for edge in (*package.dependencies, *(edge for edges in package.extras.values() for edge in edges)):
            lock.find(edge)
    return lock


def _conflicting(table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for alternatives in table.get("conflicts", []):
        for each in alternatives:
            if "extra" in each:
                yield canonicalize_name(each["package"]), canonicalize_name(each["extra"])


def _indexes(pyproject: Path) -> tuple[str | None, frozenset[str]]:
    """Return the usual registry and the others that the project declares, as the lock writes them."""
    if not pyproject.exists():
        return None, frozenset()
    tables = read_pyproject(pyproject).get("tool", {}).get("uv", {}).get("index", [])
    places = {bool(each.get("default")): _place(each, pyproject.absolute().parent) for each in tables}
    others = frozenset(_place(each, pyproject.absolute().parent) for each in tables if not each.get("default"))
    return places.get(True), others


def _place(index: dict[str, Any], folder: Path) -> str:
    """Return a registry's address as the lock writes it: a folder by its path, relative where it was given so."""
    url = str(index["url"])
    if url.startswith("file:"):
        return unquote(urlsplit(url).path).rstrip("/")
    if "://" in url:
        return url.rstrip("/")
    return url if Path(url).is_absolute() else Path(os.path.relpath(folder / url, folder)).as_posix()


def _staying(pyproject: Path, packages: tuple[Package, ...]) -> frozenset[str]:
    """Return what the settings leave in the environment. BuildError for a name that the lock does not have."""
    if not pyproject.exists():
        return frozenset()
    names = frozenset(canonicalize_name(name) for name in read_settings(pyproject)["environment"])
    unknown = sorted(names - {package.name for package in packages})
    if unknown:
        raise BuildError(
            f"`environment` in [tool.{TABLE}] of pyproject.toml names {unknown[0]!r}, which uv.lock does not have",
            "Correct or remove the name.",
        )
    return names


def _package(table: dict[str, Any], folder: Path) -> Package:
    sdist, source = table.get("sdist"), _source(table["source"])
    return Package(
        name=canonicalize_name(table["name"]),
        version=table.get("version"),
        source=source,
        dependencies=_edges(table.get("dependencies", [])),
        extras=_named(table.get("optional-dependencies", {})),
        groups=_named(table.get("dev-dependencies", {})),
        wheels=tuple(_artifact(wheel, source, folder) for wheel in table.get("wheels", [])),
        sdist=_artifact(sdist, source, folder) if sdist else None,
    )


def _named(table: dict[str, list[dict[str, Any]]]) -> dict[str, tuple[Edge, ...]]:
    return {canonicalize_name(name): _edges(edges) for name, edges in table.items()}


def _edges(tables: list[dict[str, Any]]) -> tuple[Edge, ...]:
    return tuple(_edge(table) for table in tables)


def _edge(table: dict[str, Any]) -> Edge:
    extras = table.get("extra", [])
    marker = table.get("marker")
    if marker is not None:
        Marker(marker)
    return Edge(
        name=canonicalize_name(table["name"]),
        version=table.get("version"),
        source=_source(table["source"]) if "source" in table else None,
        extras=frozenset(canonicalize_name(extra) for extra in ([extras] if isinstance(extras, str) else extras)),
        marker=marker,
    )


def _source(value: str | dict[str, str]) -> Source:
    if isinstance(value, str):
        kind, _, location = value.partition("+")
        return Source(kind, location)
    # {url = ..., subdirectory = ...}: the first key names the kind
    kind, location = next(iter(value.items()))
    return Source(kind, str(location))


def _artifact(table: dict[str, Any], source: Source, folder: Path) -> Artifact:
    url = _url(table, source, folder)
    place = table.get("filename") or table.get("url") or table.get("path") or source.location
    filename = str(place).split("#")[0].split("?")[0].replace("\\", "/").rsplit("/", 1)[-1]
    if "url" in table or "://" in str(place):
        filename = unquote(filename)  # the + before a build's label
    return Artifact(filename, table.get("hash"), table.get("size"), url)


def _url(table: dict[str, Any], source: Source, folder: Path) -> str | None:
    """Return the address of a file: its own, or that of its path in the registry's folder, or its source's."""
    if "url" in table:
        return str(table["url"])
    if "path" in table:
        place = source.location if source.kind == "registry" else ""
        return Path(os.path.normpath(folder / place / str(table["path"]))).as_uri()
    if source.kind == "url":
        return source.location
    if source.kind == "path":
        return Path(os.path.normpath(folder / source.location)).as_uri()
    return None


def _is_root(source: Source) -> bool:
    return source.kind in LOCAL and source.location in (".", "")
