"""Folders of the archive as `sys.path_hooks` sees them: for pkgutil, and for whoever looks along a `__path__`."""

from __future__ import annotations

from importlib.machinery import ModuleSpec, SourcelessFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from trainer_boot.finder import BundleFinder, BundleLoader


class FolderFinder:
    """Of one folder, given by its path in the archive ("" for the archive itself)."""

    def __init__(self, finder: BundleFinder, folder: str) -> None:
        self._finder = finder
        self._folder = folder
        self.path = finder.archive.prefix + folder if folder else finder.archive.path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """A bundled module in this folder; for any other folder in it, a portion of a namespace package."""
        finder, archive = self._finder, self._finder.archive
        inner = f"{self._folder}/{fullname.rpartition('.')[2]}".lstrip("/")
        name = inner.replace("/", ".")
        if name in finder.modules:
            found = finder.find_spec(name)
            return found if found is None or name == fullname else _renamed(found, fullname, finder.loader)
        if inner == "__main__":  # no module of the build's, and yet what `runpy` asks for
            from zipimport import zipimporter

            return zipimporter(archive.path).find_spec(fullname)
        # at the top, what `members` itself imports is looked for here too
        if inner not in (archive.members.folders if self._folder else finder.namespaces):
            if not self._folder:
                return None
            from trainer_boot.left_out import find

            return find(finder, name)
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [archive.prefix + inner]
        return spec

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """The modules in this folder: name, is it a package."""
        start = self._folder.replace("/", ".") + "." if self._folder else ""
        for name, entry in self._finder.modules.items():
            if name.startswith(start) and "." not in name[len(start) :]:
                yield prefix + name[len(start) :], entry[3]

    def invalidate_caches(self) -> None:
        """Nothing to do: an archive does not change."""


class _Renamed:
    """Loads a bundled module by another name: that of a file, given without its package to the finder of a folder."""

    def __init__(self, loader: BundleLoader, name: str, wanted: str) -> None:
        self._loader, self._name, self._wanted = loader, name, wanted

    def __getattr__(self, attribute: str) -> object:
        asked = getattr(self._loader, attribute)
        if attribute not in ("get_code", "get_source", "get_filename", "is_package", "get_resource_reader"):
            return asked
        return lambda name=None: asked(self._name if name in (self._wanted, None) else name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """None: an ordinary module will do."""
        return None

    exec_module = SourcelessFileLoader.exec_module

    def load_module(self, fullname: str) -> ModuleType:
        """The old way to import."""
        return type(self._loader).load_module(self, fullname)  # type: ignore[arg-type]  # any loader serves there


def _renamed(spec: ModuleSpec, name: str, loader: BundleLoader) -> ModuleSpec:
    made = ModuleSpec(name, _Renamed(loader, spec.name, name), origin=spec.origin)  # type: ignore[arg-type]
    made.submodule_search_locations = spec.submodule_search_locations
    made.has_location = True
    return made
