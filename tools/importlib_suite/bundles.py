"""Fixtures of CPython's tests as archives of ours: the thin adapter.

A folder or zip that a test puts on `sys.path` is packed by the build tool's writer, and the archive is opened as if it
lay where the fixture lies. Its BundleFinder and path hook then answer in the place of FileFinder and zipimport, which
never see the fixture. Standard library only: it runs in every Python that is judged.
"""

import marshal
import os
import sys
import tempfile
import unittest
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any

from build.cache import Cache
from build.compile import CodeSection, compile_code
from build.errors import BuildError
from build.interpreters import Interpreter, find_interpreters
from build.minify.passes import PASSES
from build.minify.stage import shorten
from build.tree import File, Tree
from build.write import write
from trainer_boot import layout, metadata, namespaces, paths, resources
from trainer_boot.finder import Archive, BundleFinder, BundleLoader
from trainer_boot.members import SourceLoader, names_only

AHEAD = (metadata, namespaces, paths, resources)  # not to be imported in the midst of a test that forbids it
KINDS = ("code", "minified", "source")  # code of plain text, code of minified text, no code for this Python
_BOOT = {*layout.BOOT_MODULES, "trainer_boot.__main__", *getattr(layout, "SOURCE_MODULES", ())} - {"trainer_boot"}
STUBS = ("trainer_boot/__init__.py", *sorted(name.replace(".", "/") + ".py" for name in _BOOT))  # empty: none starts

Contents = dict[str, bytes]


class Maker:
    """Packs contents into archives of one kind, and opens them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.touches = 0
        self._python = find_interpreters([])
        self._cache = Cache(folder / "code")
        self._made: dict[tuple[str, frozenset[tuple[str, bytes]]], BundleFinder] = {}

    def opened(self, place: str, contents: Contents) -> BundleFinder:
        """The Finder of the archive with these files, as if it lay at `place`. SkipTest if the build refuses them."""
        key = (place, frozenset(contents.items()))
        if key not in self._made:
            self._made[key] = self._open(place, self._packed(contents))
        return self._made[key]

    def _packed(self, contents: Contents) -> bytes:
        try:
            files = {**contents, **dict.fromkeys(STUBS, b"")}
            tree = Tree.of(self._file(path, data, files) for path, data in files.items())
            compiled = Tree.of(file for file in tree if file.path in STUBS) if self.kind == "source" else tree
            sections = compile_code(compiled, self._python, self._cache)
            return write(tree, _named(sections, self._python[0]), {}, entry="trainer_boot")
        except (BuildError, ValueError) as error:
            raise unittest.SkipTest(f"the build refuses it: {error}") from None

    def _file(self, path: str, data: bytes, files: Contents) -> File:
        parts = path.removesuffix(".py").split("/")
        is_package = parts[-1] == "__init__" and len(parts) > 1
        names = parts[:-1] if is_package else parts
        hidden = not is_package and f"{path.removesuffix('.py')}/__init__.py" in files
        if not path.endswith(".py") or hidden or not all(name.isidentifier() for name in names):
            return File(path, data, "fixture")
        if self.kind != "minified" or not data:
            return File(path, data, "fixture", ".".join(names), is_package, data)
        # as bundled packages are: without their docstrings are only our own
        outcome = shorten(data, tuple(name for name in PASSES if "docstring" not in name))
        return File(path, outcome.data, "fixture", ".".join(names), is_package, data, outcome.passes)

    def _open(self, place: str, data: bytes) -> BundleFinder:
        file = self.folder / f"{len(self._made)}.pyz"
        file.write_bytes(data)
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        archive = _Watched(self, place, descriptor, data[: layout.HEADER_SIZE])
        if self.kind == "source":
            contents = names_only(archive)
            loader: BundleLoader = SourceLoader(archive, contents[2], 0)
        else:
            section, index = _section(data)
            contents = marshal.loads(index)
            loader = BundleLoader(archive, contents[2], section)
        finder = BundleFinder(loader, contents)
        for path in STUBS:
            finder.modules.pop(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."), None)
        finder.namespaces = tuple(name for name in finder.namespaces if name != "trainer_boot")
        return finder


class _Watched(Archive):
    """Counts the reads, so that a test that never met one of ours is known."""

    def __init__(self, maker: Maker, path: str, descriptor: int, head: bytes) -> None:
        super().__init__(path, descriptor, head)
        self._maker = maker

    def read(self, offset: int, size: int, decode: Any) -> bytes:
        self._maker.touches += 1
        return super().read(offset, size, decode)


def _named(sections: Iterable[CodeSection], interpreter: Interpreter) -> list[CodeSection]:
    return [CodeSection(interpreter, section.codes) for section in sections]


def _section(data: bytes) -> tuple[int, bytes]:
    slot = data[layout.FIRST_SLOT : layout.FIRST_SLOT + layout.SLOT_SIZE]
    offset, *sizes = (int.from_bytes(slot[i : i + 8], "little") for i in range(8, 48, 8))
    end = offset + sum(sizes)
    return end, data[end - sizes[-1] : end]


class Bundles:
    """On `sys.meta_path` and `sys.path_hooks`: the BundleFinder of each fixture, in the order of `sys.path`."""

    def __init__(self, maker: Maker, roots: Iterable[str]) -> None:
        self.maker = maker
        self.fixed: list[BundleFinder] = []
        self.partly: dict[str, Contents] = {}  # entries of `sys.path` that hold more than the fixture
        self.texts: dict[bytes, bytes] = {}  # of what a test has compiled
        self._roots = tuple(roots)
        self._own = str(maker.folder) + "/"

    def install(self) -> None:
        """Before all finders that look at files."""
        sys.meta_path.insert(next(i for i, each in enumerate(sys.meta_path) if "PathFinder" in repr(each)), self)
        sys.path_hooks.insert(0, self.hook)
        sys.path_importer_cache.clear()

    def pretend(self, place: str, contents: Contents) -> None:
        """Packages and modules in folders below `place`, which stay what they are, come from an archive from now on."""
        finder = self.maker.opened(place, contents)
        finder.namespaces = ()
        self.fixed.append(finder)

    def of(self, entry: object) -> BundleFinder | None:
        """The archive that stands for an entry of `sys.path`, as its files are now."""
        place = os.fspath(entry) if isinstance(entry, str | os.PathLike) else ""
        if place in self.partly:
            return self.maker.opened(place, self.partly[place])
        if not isinstance(place, str) or not place.startswith(self._roots) or place.startswith(self._own):
            return None
        contents = _contents(place, self.texts)
        return None if contents is None else self.maker.opened(place, contents)

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """For importlib."""
        if fullname.partition(".")[0] in ("trainer_boot", "build", "tools"):
            return None
        places = sys.path if path is None else path
        finders = [] if path is None else [each for each in self.fixed if self._is_inside(each, fullname)]
        finders += filter(None, map(self.of, dict.fromkeys(self._root(place) for place in places)))
        for finder in finders:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self.maker.touches += 1
                self._like_a_file_loader(spec, finder.archive.path)
                return spec
        return None

    def _like_a_file_loader(self, spec: Any, place: str) -> None:
        """What tests look at, and a loader of many modules has not."""
        if isinstance(spec.loader, BundleLoader):
            spec.loader.path = spec.origin  # type: ignore[attr-defined]
            spec.cached = cache_from_source(spec.origin)
        if place in sys.path and self.of(place) is not None:
            sys.path_importer_cache.setdefault(place, self.hook(place))  # tests tidy it away

    def find_distributions(self, context: Any) -> Iterator[Any]:
        """For importlib.metadata."""
        for finder in filter(None, map(self.of, dict.fromkeys(sys.path))):
            for found in finder.find_distributions(context):
                self.maker.touches += 1
                yield found

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """For pkgutil."""
        for finder in filter(None, map(self.of, dict.fromkeys(sys.path))):
            yield from finder.iter_modules(prefix)

    def hook(self, path: str) -> "Fresh":
        """For `sys.path_hooks`."""
        if self._finder(path) is None:
            raise ImportError(path)
        return Fresh(self, path)

    def _finder(self, path: str) -> BundleFinder | None:
        for finder in self.fixed:
            inner = path.removeprefix(finder.archive.prefix)
            if inner != path and self._is_inside(finder, inner.replace("/", ".")):
                return finder
        return self.of(self._root(path))

    def _is_inside(self, finder: BundleFinder, name: str) -> bool:
        """Is it one of the modules, or below one?"""
        while name and name not in finder.modules:
            name = name.rpartition(".")[0]
        return bool(name)

    def _root(self, path: object) -> str:
        """The entry of `sys.path`, or the zip, that a folder belongs to."""
        place = str(path)
        above = [entry for entry in map(str, sys.path) if entry and (place + "/").startswith(entry + "/")]
        found = max(above, key=len, default=place)
        head, dot_zip, _ = found.partition(".zip/")
        return head + ".zip" if dot_zip else found


class Fresh:
    """The finder of a folder, of the archive with the files that are there when it is asked."""

    def __init__(self, bundles: Bundles, path: str) -> None:
        self._bundles, self.path = bundles, path

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> Any:
        finder = self._bundles._finder(self.path)
        spec = None if finder is None else finder.path_hook(self.path).find_spec(fullname, target)
        self._bundles.maker.touches += spec is not None
        return spec

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        finder = self._bundles._finder(self.path)
        if finder is not None:
            self._bundles.maker.touches += 1
            yield from finder.path_hook(self.path).iter_modules(prefix)

    def invalidate_caches(self) -> None:
        """As ours."""


def _contents(place: str, texts: "dict[bytes, bytes] | None" = None) -> Contents | None:
    """The files of a folder or zip, without what Python has made there; None if it is neither. `texts`: of bytecode."""
    path = Path(place)
    if path.is_dir():
        files = [each for each in path.rglob("*") if each.is_file() and "__pycache__" not in each.parts]
        found = {each.relative_to(path).as_posix(): each.read_bytes() for each in files}
    elif path.is_file() and zipfile.is_zipfile(place):
        with zipfile.ZipFile(place) as archive:
            found = {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}
    else:
        return None
    for name in [name for name in found if name.endswith((".pyc", ".pyo"))]:
        code = found.pop(name)
        if texts and code in texts:
            found.setdefault(name[:-1], texts[code])
    return found


def below(root: str, *folders: str) -> Contents:
    """The files of these folders or of single files under `root`, by their paths from there."""
    found: Contents = {}
    for folder in folders:
        place = Path(root, folder)
        if place.is_file():
            found[folder] = place.read_bytes()
        else:
            found |= {f"{folder}/{path}": data for path, data in (_contents(str(place)) or {}).items()}
    return found


def temporary() -> str:
    """Where tests make their fixtures."""
    return tempfile.gettempdir() + "/"
