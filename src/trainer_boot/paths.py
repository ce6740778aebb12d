"""Folders of the archive as `sys.path_hooks` sees them: for pkgutil, and for packages without `__init__.py`."""

from __future__ import annotations

from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from trainer_boot.finder import BundleFinder


class FolderFinder:
    """Of one folder, given by its path in the archive. What is there in plain sight is the BundleFinder's."""

    def __init__(self, finder: BundleFinder, folder: str) -> None:
        self._finder = finder
        self._folder = folder

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """A bundled module in this folder; for any other folder in it, a portion of a namespace package."""
        archive = self._finder.archive
        path = f"{self._folder}/{fullname.rpartition('.')[2]}"
        if path.replace("/", ".") in self._finder.modules:
            return self._finder.find_spec(path.replace("/", "."))
        if path not in archive.members.folders:
            from trainer_boot.left_out import find

            return find(self._finder, path.replace("/", "."))
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [archive.prefix + path]
        return spec

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """The modules in this folder: name, is it a package."""
        start = self._folder.replace("/", ".") + "."
        for name, entry in self._finder.modules.items():
            if name.startswith(start) and "." not in name[len(start) :]:
                yield prefix + name[len(start) :], entry[3]


def namespace_spec(finder: BundleFinder, name: str) -> ModuleSpec | None:
    """A top-level namespace package: the bundled portion first, then those on `sys.path`."""
    portions = [finder.archive.prefix + name]
    elsewhere = PathFinder.find_spec(name)
    if elsewhere is not None and elsewhere.origin is None:
        portions += elsewhere.submodule_search_locations or []
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = portions
    return spec
