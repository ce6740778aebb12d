"""What is installed, as imports would find it: from the names of the `.dist-info` folders, not from `__version__`.

One listing for each folder of sys.path, no import; torch reports two versions of itself.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SUFFIXES = (".dist-info", ".egg-info")


class Installed:
    """One distribution: its normalized name, its version, the folder of sys.path and the name of its entry there."""

    __slots__ = ("entry", "name", "site", "version")

    def __init__(self, name: str, version: str, site: str, entry: str) -> None:
        self.name = name
        self.version = version
        self.site = site
        self.entry = entry

    @property
    def folder(self) -> str:
        """Where its metadata lie."""
        return os.path.join(self.site, self.entry)


class Survey:
    """All of a path.

    `found`: of a name in two folders the first; of a name twice in one folder, both. `hidden`: those in later folders.
    `leftovers`: entries that an interrupted uninstall has renamed. `places`: every folder with the names in it.
    """

    def __init__(self) -> None:
        self.found: list[Installed] = []
        self.hidden: list[Installed] = []
        self.leftovers: list[str] = []
        self.places: list[tuple[str, frozenset[str]]] = []

    def pairs(self) -> list[tuple[str, str]]:
        """(normalized name, version) of each found."""
        return [(each.name, each.version) for each in self.found]

    def of(self, name: str) -> list[Installed]:
        """Those found under a normalized name."""
        return [each for each in self.found if each.name == name]


def survey(path: Iterable[str] | None = None) -> Survey:
    """Looks through the path (None: sys.path)."""
    result = Survey()
    seen: set[str] = set()
    for folder in dict.fromkeys(sys.path if path is None else path):
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        result.places.append((folder, frozenset(entries)))
        here = []
        for entry in sorted(entries):
            if not entry.endswith(SUFFIXES):
                continue
            if entry[0] == "~":
                result.leftovers.append(os.path.join(folder, entry))
                continue
            named = _read(folder, entry)
            if named is not None:
                here.append(Installed(*named, folder, entry))
        result.found += [each for each in here if each.name not in seen]
        result.hidden += [each for each in here if each.name in seen]
        seen.update(each.name for each in here)
    return result


def installed(path: Iterable[str] | None = None) -> list[tuple[str, str]]:
    """(normalized name, version) of every distribution on the path (None: sys.path), as imports would find them."""
    return survey(path).pairs()


def normalized(name: str) -> str:
    """PEP 503, without `re`."""
    pieces = name.lower().replace("_", "-").replace(".", "-").split("-")
    return "-".join(piece for piece in pieces if piece)


def headers(text: str) -> tuple[str, str] | None:
    """Normalized name and version of a METADATA file."""
    values: dict[str, str] = {}
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        if not colon:
            break
        values.setdefault(key.lower(), value.strip())
    if "name" not in values or "version" not in values:
        return None
    return normalized(values["name"]), values["version"]


def _read(folder: str, entry: str) -> tuple[str, str] | None:
    """Name and version of one entry; from inside it where its own name was not written to the rules."""
    stem = entry.rsplit(".", 1)[0]
    name, _, version = stem.partition("-")
    if entry.endswith(".dist-info") and version[:1].isdigit():
        return normalized(name), version
    for inside in ("METADATA", "PKG-INFO", ""):
        try:
            with open(os.path.join(folder, entry, inside).rstrip(os.sep), encoding="utf-8", errors="replace") as file:
                return headers(file.read())
        except OSError:
            continue
    return None
