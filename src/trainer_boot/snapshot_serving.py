"""The finder and the loader: files' own in everything but where code comes from.

A module is served where the path finder would have found it: its package lies in the recorded folder, or, for one at
the top level, nothing before that folder on `sys.path` has it. Of an extension module the file is named, which the
interpreter then loads itself. What is not served falls through to the finders behind: namespace packages (but not the
modules in them), everything outside of the recorded folders, a module that is loaded again (it may have been edited).
Where somebody has hooked `sys.path_hooks`, all does.
"""

import marshal
import sys
from _imp import _fix_co_filename  # type: ignore[attr-defined]  # what importlib itself does it with; no public name
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import cache_from_source

from trainer_boot import snapshot_entry_points, snapshot_generated
from trainer_boot.snapshot_format import Aside
from trainer_boot.snapshot_key import compare, source_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, ModuleType

    from trainer_boot.snapshot_format import Reader

TOLD = (snapshot_entry_points.MODULE, *snapshot_generated.MODULES)


class SnapshotLoader(SourceFileLoader):
    """A source file's, with the code from the snapshot that this process is served from."""

    def get_code(self, fullname: str) -> "CodeType | None":
        """From the snapshot; from the file where it was damaged, or is no longer the one in use."""
        finder = running()
        code = finder.code(fullname, self.path) if finder and fullname == self.name else None
        return super().get_code(fullname) if code is None else code


class ToldLoader(SnapshotLoader):
    """Of a module that is told of what else the snapshot has for it."""

    def exec_module(self, module: "ModuleType") -> None:
        """As ever; then tells it."""
        super().exec_module(module)
        finder = running()
        if finder is not None:
            finder.tell(module)


class SnapshotFinder:
    """On `sys.meta_path`, for one snapshot."""

    def __init__(self, reader: "Reader", sites: "Sequence[str]") -> None:
        self.reader = reader
        self.modules = reader.index.modules
        self.extensions = reader.index.extensions
        self.texts = reader.index.texts
        self.served = 0  # modules' code
        self.placed = 0  # extension modules' files named
        self.damaged: list[str] = []
        self.before: list[Callable[[str], None]] = []  # called with the name of what is about to be loaded
        self._sites = sites
        self._folders = [place[0] for place in reader.index.places]
        self._hooks = list(sys.path_hooks)
        self._cached_suffix = cache_from_source("x.py").rpartition("x")[2] if sys.pycache_prefix is None else None

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        """The spec of a module in the snapshot, or None. `path` is the parent's `__path__`; `target`: loaded again."""
        entry = self.modules.get(fullname)
        if entry is None:
            return self._extension(fullname, path) if fullname in self.extensions and target is None else None
        if target is not None or not self._is_first(fullname, path, entry[0]):
            return None
        is_package = entry[4]
        origin = source_path(self._folders[entry[0]], fullname, is_package)
        kind = ToldLoader if fullname in TOLD else SnapshotLoader
        spec = ModuleSpec(fullname, kind(fullname, origin), origin=origin, is_package=is_package)
        spec.has_location = True
        folder, _, name = origin.rpartition("/")
        if self._cached_suffix is not None:
            spec.cached = f"{folder}/__pycache__/{name[:-3]}{self._cached_suffix}"
        if is_package:
            spec.submodule_search_locations = [folder]
        return spec

    def code(self, fullname: str, path: str) -> "CodeType | None":
        """The code object of a module whose file is `path`; None where the snapshot does not have it."""
        entry = self.modules.get(fullname)
        if entry is None or path != source_path(self._folders[entry[0]], fullname, entry[4]):
            return None
        blob = self.reader.blob(entry)
        if blob is None:
            self.damaged.append(fullname)
            return None
        code: CodeType = marshal.loads(blob)
        _fix_co_filename(code, path)
        self.served += 1
        for each in self.before:
            each(fullname)
        return code

    def tell(self, module: "ModuleType") -> None:
        """A module that is served more than its code has just run."""
        if module.__name__ == snapshot_entry_points.MODULE:
            snapshot_entry_points.serve(module, self.texts)
        else:
            snapshot_generated.executed(module, self.reader.part, self.reader.index.generated)

    def invalidate_caches(self) -> None:
        """Somebody has installed something: if so, nothing more is served."""
        try:
            compare(self.reader.index, self._sites, "fast")
        except Aside:
            self.modules, self.extensions = {}, {}
            self.texts.clear()

    def _extension(self, fullname: str, path: "Sequence[str] | None") -> ModuleSpec | None:
        number, file, *_ = self.extensions[fullname]
        if not self._is_first(fullname, path, number):
            return None
        origin = f"{self._folders[number]}/{file}"
        spec = ModuleSpec(fullname, ExtensionFileLoader(fullname, origin), origin=origin)
        spec.has_location = True
        self.placed += 1
        for each in self.before:
            each(fullname)
        return spec

    def _is_first(self, fullname: str, path: "Sequence[str] | None", number: int) -> bool:
        """Whether the path finder would look into that recorded folder before all that could have such a module now."""
        if sys.path_hooks != self._hooks:
            return False
        if path is None:
            return self._first_on_path(fullname, number)
        # a namespace package's is no list: it may grow, but has each portion where it had it, unless another is first
        if type(path) is not list and type(path).__name__ != "_NamespacePath":
            return False
        return next(iter(path), "") == f"{self._folders[number]}/{fullname.rpartition('.')[0].replace('.', '/')}"

    def _first_on_path(self, fullname: str, number: int) -> bool:
        """The recorded folders had no module of that name before the one that it is in; are there others now?"""
        try:
            before = sys.path[: sys.path.index(self._folders[number])]
        except ValueError:
            return False
        others = [place for place in before if place not in self._folders[:number]]
        if not others:
            return True
        found = PathFinder.find_spec(fullname, others)
        return found is None or found.loader is None


def running() -> SnapshotFinder | None:
    """The finder that serves this process, if there is one."""
    return next((finder for finder in sys.meta_path if isinstance(finder, SnapshotFinder)), None)


def install(reader: "Reader", sites: "Sequence[str]") -> SnapshotFinder:
    """Puts it right before the finder that searches `sys.path`, in place of one that is there."""
    withdraw()
    finder = SnapshotFinder(reader, sites)
    sys.meta_path.insert(sys.meta_path.index(PathFinder), finder)
    for name in snapshot_generated.MODULES:
        if name in sys.modules:
            finder.tell(sys.modules[name])
    return finder


def withdraw() -> None:
    """Ends serving; what was imported stays."""
    finder = running()
    if finder is not None:
        sys.meta_path.remove(finder)
        finder.reader.close()
        finder.texts.clear()
    snapshot_generated.withdraw()


def unusual() -> str:
    """Why modules of this process may not be served from elsewhere than where the path finder would look; or ""."""
    if PathFinder not in sys.meta_path:
        return "the interpreter's path finder was replaced"
    if not all(_is_known(hook) for hook in sys.path_hooks):
        return "sys.path_hooks holds a hook that is not Python's own"
    return ""


def _is_known(hook: object) -> bool:
    owner = getattr(hook, "__module__", "")
    return owner in ("zipimport", "importlib._bootstrap_external", "_frozen_importlib_external", "trainer_boot.finder")
