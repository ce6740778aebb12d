"""What the file carries of the lock (build/carried.py writes it): packages, markers and hashes, for each variant."""

from __future__ import annotations

import json
import os
import sys

from trainer_boot.environment import markers
from trainer_boot.environment.refused import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from packaging.tags import Tag

FORMAT = 1
ENVIRONMENT = "environment"
TELLING = 16
"""Digits of the digest that stand in names."""


class File:
    """A wheel, or the source where the lock has nothing else."""

    __slots__ = ("hash", "name", "size")

    def __init__(self, name: str, digest: str | None, size: int | None) -> None:
        self.name = name
        self.hash = digest
        self.size = size or 0


class Pin:
    """One version of a package, with the markers of which one has to hold (None among them: it always does)."""

    __slots__ = ("files", "index", "kind", "markers", "name", "version")

    def __init__(self, row: list[Any], markers: list[str | None]) -> None:
        self.name, self.version, self.kind, self.index, files = row
        self.files = [File(*file) for file in files]
        self.markers = markers

    def applies(self, marker_environment: dict[str, str]) -> bool:
        """Whether it is needed there."""
        return any(markers.holds(marker, marker_environment) for marker in self.markers)

    def requirement(self) -> dict[str, object]:
        """As `checking.check` has it; that it is needed is decided already."""
        hashes = [file.hash for file in self.files if file.hash]
        found: dict[str, object] = {"name": self.name, "version": self.version, "marker": None, "kind": self.kind}
        found["hashes"] = hashes
        if self.index:
            found["index"] = self.index
        return found

    def installable(self, tags: Sequence[Tag]) -> File | None:
        """The wheel that fits these tags best, or None."""
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename

        order = {tag: place for place, tag in enumerate(tags)}
        best: tuple[int, File] | None = None
        for file in self.files:
            try:
                fits = [order[tag] for tag in parse_wheel_filename(file.name)[3] if tag in order]
            except InvalidWheelFilename:
                continue
            if fits and (best is None or min(fits) < best[0]):
                best = (min(fits), file)
        return None if best is None else best[1]


class Carried:
    """The whole of it. ValueError for what is not of this format."""

    def __init__(self, text: bytes) -> None:
        table: dict[str, Any] = json.loads(text)
        if table.get("format") != FORMAT:
            raise ValueError("this file carries no lock of an environment")
        self.digest: str = table["digest"]
        self.requires_python: str = table["requires_python"]
        self.index: str | None = table["index"]
        self._supported: list[str] = table["supported"]
        self._packages: list[list[Any]] = table["packages"]
        self._sets: dict[str, dict[str, list[list[Any]]]] = table["sets"]
        self._installer: int | None = table["installer"]

    @property
    def variants(self) -> list[str]:
        """The other builds of torch that are locked, by name; "" is the usual one."""
        return sorted(self._sets)

    @property
    def extras(self) -> list[str]:
        """What may be added to each variant."""
        return sorted(set(self._sets[""]) - {""})

    @property
    def installer(self) -> Pin | None:
        """uv, where it is locked."""
        return None if self._installer is None else Pin(self._packages[self._installer], [None])

    def pins(self, variant: str = "", extras: Iterable[str] = ()) -> list[Pin]:
        """All that is locked for it, on any platform. Refused (status 2) for a variant or extra that is not locked."""
        self._refuse_unknown("variant", variant, [each for each in self.variants if each], variant == "")
        chosen = self._sets[variant]
        conditions: dict[int, list[str | None]] = {}
        for extra in ("", *extras):
            self._refuse_unknown("extra", extra, self.extras, extra == "")
            for number, marker in chosen[extra]:
                conditions.setdefault(number, []).append(marker)
        return [Pin(self._packages[number], wanted) for number, wanted in conditions.items()]

    def here(self, variant: str = "", extras: Iterable[str] = (), target: dict[str, str] | None = None) -> list[Pin]:
        """What this interpreter, or one with other marker values, needs of it. Refused where the lock is for others."""
        environment = {**markers.values_here(), **(target or {})}
        self.require_covered(environment)
        return [pin for pin in self.pins(variant, extras) if pin.applies(environment)]

    def require_covered(self, environment: dict[str, str]) -> None:
        """Refused for a Python or a platform that was not locked."""
        python = environment["python_full_version"]
        if not markers.allows(self.requires_python, python):
            raise Refused(
                f"this file is locked for Python {self.requires_python}; {sys.executable} is Python {python}",
                f"Start it with Python {self.requires_python}.",
            )
        if self._supported and not any(markers.holds(marker, environment) for marker in self._supported):
            raise Refused(
                f"the lock does not cover {environment['sys_platform']} on {environment['platform_machine']}",
                f"Use a platform that it covers: {'; '.join(self._supported)}.",
            )

    def _refuse_unknown(self, what: str, name: str, known: list[str], fine: bool) -> None:
        if not fine and name not in known:
            raise Refused(
                f"there is no {what} {name!r} in the lock", f"Use one that it has: {', '.join(known) or 'none'}.", 2
            )


def interpreter_tag(version: tuple[int, int] | None = None) -> str:
    """`cp311`; of another version where one is given."""
    major, minor = version or sys.version_info[:2]
    return f"cp{major}{minor}{getattr(sys, 'abiflags', '')}"


def platform_tag() -> str:
    """`x86_64-linux-gnu`: machine, system and C library, as the interpreter was built for them."""
    return getattr(sys.implementation, "_multiarch", "") or f"{os.uname().machine}-{sys.platform}"


def store_name(carried: Carried, variant: str = "", extras: Iterable[str] = ()) -> str:
    """What the environment for this interpreter is called in every store: the same name, the same content."""
    chosen = [variant] if variant else []
    return "-".join([f"{prefix(carried)}{interpreter_tag()}-{platform_tag()}", *chosen, *sorted(set(extras))])


def prefix(carried: Carried) -> str:
    """How the names of all environments of this lock begin."""
    return carried.digest[:TELLING] + "-"
