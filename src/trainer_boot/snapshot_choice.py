"""Which of a process's modules belong into a snapshot.

In it: modules of a distribution that its RECORD lists and modules of the standard library, with Python source, where
the path finder looks first; extension modules by the place of their file. Not in it: what is editable or was put beside
the distributions by hand (nothing would show that it changed), what the archive brings along, what is frozen or built
in, and distutils, which setuptools answers for.
"""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, PathFinder
from types import ModuleType

from trainer_boot.snapshot_key import library_folders, records, source_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from importlib.machinery import ModuleSpec

    Listed = Mapping[str, set[str]]


class Found:
    """A module, the recorded folder that it lies in, and where in it: `file` is relative to the folder."""

    __slots__ = ("file", "folder", "is_extension", "is_package", "name")

    def __init__(self, name: str, folder: str, file: str, is_package: bool, is_extension: bool) -> None:
        self.name = name
        self.folder = folder
        self.file = file
        self.is_package = is_package
        self.is_extension = is_extension


def choose(names: "Iterable[str]", sites: "Sequence[str]", listed: "Listed | None" = None) -> "Iterator[Found]":
    """Those of the modules that belong into a snapshot. `listed`: what the RECORDs of each of `sites` list, as
    snapshot_key.records gives it; None: read here, when the first module asks for it."""
    library = library_folders()
    tops: dict[str, str | None] = {}
    for name in names:
        top = name.partition(".")[0]
        if top == "distutils":
            continue
        if top not in tops:
            tops[top] = _folder_of(top, sites, library)
        folder = tops[top]
        if folder is None:
            continue
        if folder in library:
            found = _of_library(name, folder, library)
        else:
            if listed is None:
                listed = records(sites)[1]
            found = _of_distribution(name, folder, listed[folder])
        if found is not None:
            yield found


def foreign(names: "Iterable[str]", sites: "Sequence[str]") -> int:
    """How many of the modules a snapshot could have at most: without a look at the file system."""
    starts = tuple(folder + "/" for folder in (*sites, *library_folders()))
    return sum((_origin(name) or "").startswith(starts) for name in names)


def _of_library(name: str, folder: str, library: "Sequence[str]") -> Found | None:
    origin = _origin(name)
    for is_package in (False, True):
        if origin == source_path(folder, name, is_package):
            return Found(name, folder, origin[len(folder) + 1 :], is_package, False)
    for place in library:
        file = _extension_file(name, place)
        if file:
            return Found(name, place, file, False, True)
    return None


def _of_distribution(name: str, site: str, listed: set[str]) -> Found | None:
    stem = name.replace(".", "/")
    file = _extension_file(name, site)
    if file:
        return Found(name, site, file, False, True) if file in listed and _in_first_portion(name, site) else None
    is_package = stem + "/__init__.py" in listed
    is_module = stem + ".py" in listed and not any(stem + each in listed for each in EXTENSION_SUFFIXES)
    if not (is_package or is_module) or not _in_first_portion(name, site):
        return None
    origin, path = _origin(name), source_path(site, name, is_package)
    # some replace themselves in sys.modules and have none
    return Found(name, site, path[len(site) + 1 :], is_package, False) if origin in (None, path) else None


def _extension_file(name: str, folder: str) -> str:
    """Where in the folder the extension module lies; "" for another kind of module or place."""
    spec = _spec(name)
    origin = spec.origin if spec else None
    if not origin or type(spec.loader if spec else None) is not ExtensionFileLoader:
        return ""
    stem = f"{folder}/{name.replace('.', '/')}"
    # the first suffix is the most special one: a file with a later one could be hidden by a new file
    return origin[len(folder) + 1 :] if origin in [stem + suffix for suffix in EXTENSION_SUFFIXES] else ""


def _folder_of(top: str, sites: "Sequence[str]", library: "Sequence[str]") -> str | None:
    """The recorded folder from which a top-level module comes."""
    spec = _spec(top)
    if spec is None and top not in sys.modules:
        spec = PathFinder.find_spec(top)
    origin = spec.origin if spec else None
    if origin is None:
        return _first_portion(spec, top, sites)
    is_library = top in sys.stdlib_module_names or top.startswith("_sysconfigdata_")
    for folder in library if is_library else sites:
        if origin in (source_path(folder, top, False), source_path(folder, top, True)):
            # the whole package by a link: editable in the manner of some tools
            return None if os.path.islink(f"{folder}/{top}") else folder
        if _extension_file(top, folder):
            return folder
    return None


def _first_portion(spec: "ModuleSpec | None", top: str, sites: "Sequence[str]") -> str | None:
    """Of a package without `__init__.py`, which may lie in several folders."""
    first = next(iter(spec.submodule_search_locations or ()), "") if spec else ""
    return next((site for site in sites if first == f"{site}/{top}" and not os.path.islink(first)), None)


def _in_first_portion(name: str, site: str) -> bool:
    """Whether the package of the module is looked for in that folder before all others."""
    parent = name.rpartition(".")[0]
    spec = _spec(parent) if parent else None
    if spec is None or spec.origin is not None:
        return True
    return next(iter(spec.submodule_search_locations or ()), "") == f"{site}/{parent.replace('.', '/')}"


def _spec(name: str) -> "ModuleSpec | None":
    """Of the imported module of that name, without waking a lazy one."""
    module = sys.modules.get(name)
    if not issubclass(type(module), ModuleType):
        return None
    spec: ModuleSpec | None = object.__getattribute__(module, "__dict__").get("__spec__")
    return spec


def _origin(name: str) -> str | None:
    origin: str | None = getattr(_spec(name), "origin", None)
    return origin
