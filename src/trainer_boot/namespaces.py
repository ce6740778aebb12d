"""Packages without `__init__.py` of which the archive has a portion; others may lie in site-packages."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, NamespaceLoader, PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from trainer_boot.finder import BundleFinder


class SpreadLoader(NamespaceLoader):
    """The standard one; its resources may lie in the archive. `path`: the portions, which follow `sys.path`."""

    def __init__(self, finder: BundleFinder, path: Any) -> None:
        self._finder = finder
        self._path = path

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run; the standard one is given no `__file__` but has one, of None."""
        module.__file__ = None

    def get_resource_reader(self, module: Any) -> Any:
        """For importlib.resources: what lies in all portions."""
        from trainer_boot.resources import PortionsReader

        return PortionsReader(self._finder.archive, list(self._path))


def spread(finder: BundleFinder, name: str) -> ModuleSpec:
    """A top-level one: the bundled portion first, then those on `sys.path`."""

    def portions(name: str, path: Sequence[str] | None) -> ModuleSpec:
        elsewhere = PathFinder.find_spec(name)
        found = ModuleSpec(name, None, is_package=True)
        places = [finder.archive.prefix + name]
        if elsewhere is not None and elsewhere.loader is None:
            places += [place for place in elsewhere.submodule_search_locations or [] if place not in places]
        found.submodule_search_locations = places
        return found

    first = portions(name, None).submodule_search_locations
    followed = NamespaceLoader(name, first, portions)._path  # type: ignore[arg-type, attr-defined]  # looks again
    return _spec(finder, name, followed)


def nested(finder: BundleFinder, name: str, path: Sequence[str]) -> ModuleSpec | None:
    """One that lies in a bundled package: any folder there. None if there is none, or a module that comes before."""
    if not any(place.startswith(finder.archive.prefix) for place in path):
        return None
    found = PathFinder.find_spec(name, path)
    if found is None or found.loader is not None:
        return None
    return _spec(finder, name, found.submodule_search_locations)


def join(finder: BundleFinder) -> None:
    """Where one was imported before there was a Finder, it gets the bundled portion, and loses what that has too."""
    for top in finder.namespaces:
        module = sys.modules.get(top)
        if module is None:
            continue
        regular = getattr(module, "__file__", None) is not None
        for name in [name for name in sys.modules if name == top or name.startswith(top + ".")]:
            if regular or _is_bundled(finder, name):
                del sys.modules[name]
                parent, _, last = name.rpartition(".")
                vars(sys.modules.get(parent, module)).pop(last, None)
        if not regular:
            spec = spread(finder, top)
            module.__spec__, module.__loader__ = spec, spec.loader
            module.__path__ = spec.submodule_search_locations or []


def _is_bundled(finder: BundleFinder, name: str) -> bool:
    while name:
        if name in finder.modules:
            return True
        name = name.rpartition(".")[0]
    return False


def _spec(finder: BundleFinder, name: str, path: Any) -> ModuleSpec:
    spec = ModuleSpec(name, SpreadLoader(finder, path), is_package=True)
    spec.submodule_search_locations = path
    return spec
