"""Serves the archive's modules to `import`: one dictionary look-up a module, no look at the file system.

Which copy wins. The Finder stands right before the one that searches `sys.path`, so
- a bundled module wins over one of that name in site-packages, on PYTHONPATH or in the current folder, and where such a
  one was imported before (by a `.pth` file), it is dropped from `sys.modules`;
- the standard library wins over a bundled module of the same top-level name: a backport that a dependency brings along
  must not hide it;
- a package comes from one place: a submodule that only another copy has is not found, and a submodule of a package that
  came from elsewhere is not served. Spread over several places are namespace packages (without `__init__.py`), whose
  bundled portion comes first, and packages that put other folders into their `__path__`, in the order of these.

What changes under a running job. The archive stays open, so replacing it by `mv` or deleting it does no harm. Every
blob is checked as it is read (`pread`: no position that forked children would share), so if other bytes were copied
over the file, the next import of something that changed says so; code of two builds never meets in one process.
"""

import marshal
import os
import sys
from _imp import _fix_co_filename  # type: ignore[attr-defined]  # what importlib itself does it with; no public name
from importlib.machinery import ModuleSpec, PathFinder, SourcelessFileLoader
from os import pread
from time import monotonic_ns

from trainer_boot.layout import HEADER_CHECK, HEADER_SIZE, MAIN_CHECK, TAIL_CHECK, check, path_of, unpacked, word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from importlib.abc import Loader
    from importlib.metadata import Distribution, DistributionFinder
    from types import CodeType, ModuleType, TracebackType

    from trainer_boot.layout import Index, ModuleEntry
    from trainer_boot.members import Members
    from trainer_boot.paths import FolderFinder
    from trainer_boot.resources import Reader
else:
    Loader = object  # the real one does nothing more and costs an import

BUILD_VARIABLE = "TRAINER_PYZ_BUILD"
VERIFY_VARIABLE = "TRAINER_VERIFY"
"""If set: "all" (the whole file is compared with its digest before anything else runs) or the SHA-256 of the file that
may run and no other."""
# of Python's own modules, those that know files only (`mending`)
MENDED = {"linecache", "threading", "multiprocessing.spawn"}


class BundleError(Exception):
    """The archive can't be used; `what` happened and what will `fix` it.

    No ImportError: whoever can do without a module catches that one, and would go on otherwise than the build does.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}; {fix}")
        self.what = what
        self.fix = fix

    def __reduce__(self) -> "tuple[type[BundleError], tuple[str, str]]":  # pools send it to the parent process
        return type(self), (self.what, self.fix)


class Archive:
    """The open file."""

    def __init__(self, path: str, descriptor: int, head: bytes) -> None:
        self.path = path
        self.prefix = path + "/"
        self.head = head
        self.descriptor = descriptor
        self._members: Members | None = None

    @property
    def members(self) -> "Members":
        """Its files; only what is not an import of a module asks for them."""
        if self._members is None:
            from trainer_boot.members import Members

            self._members = Members(self)
        return self._members

    def read(self, offset: int, size: int, decode: "Callable[[bytes], bytes | None]") -> bytes:
        """What `decode` makes of the bytes at `offset`. BundleError if it finds them wrong (None)."""
        try:
            data = decode(pread(self.descriptor, size, offset))
        except OSError:  # closed by code that closes all it finds; stale on NFS
            data = None
        return self._read_anew(offset, size, decode) if data is None else data

    def _read_anew(self, offset: int, size: int, decode: "Callable[[bytes], bytes | None]") -> bytes:
        """The same from the file that has this path now, if it is of this build."""
        descriptor = -1
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            same = pread(descriptor, HEADER_SIZE, 0) == self.head
            data = decode(pread(descriptor, size, offset)) if same else None
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            raise BundleError(f"{self.path} is gone since this process started ({error.strerror})", RESTART) from None
        if data is None:
            os.close(descriptor)
            if same:
                raise BundleError(f"{self.path} was damaged after it was built", _REBUILD)
            raise BundleError(f"{self.path} has changed since this process started", RESTART)
        self.descriptor = descriptor
        return data


_REBUILD = "Copy or build the file again (python -m build)."
RESTART = "Start again. To deploy a new build beside running jobs, replace the file with mv, not with cp."


class BundleSpec(ModuleSpec):
    """Of a module that has no cached file; to compute the name of one would cost more than to find the module."""

    cached = None


class BundleLoader(Loader):
    """What the modules of one archive are loaded by; it has the code for the running version of Python."""

    has_code = True

    def __init__(self, archive: Archive, modules: "dict[str, ModuleEntry]", section: int) -> None:
        self.archive = archive
        self.modules = modules
        self._section = section

    def create_module(self, spec: ModuleSpec) -> "ModuleType | None":
        """None: an ordinary module will do."""
        return None

    # The standard library's: its frames are left out of tracebacks.
    exec_module = SourcelessFileLoader.exec_module

    def get_code(self, fullname: str) -> "CodeType":
        """The code object, with the path of the module as its file name. ImportError if there is no such module."""
        code: CodeType = marshal.loads(self.stored_code(fullname))
        _fix_co_filename(code, self.archive.prefix + self._path(fullname))
        return code

    def stored_code(self, fullname: str) -> bytes:
        """The marshalled code. ImportError."""
        offset, size, expected, _ = self._entry(fullname)
        blob = self.archive.read(self._section + offset, size, lambda blob: blob if check(blob) == expected else None)
        return unpacked(blob)

    def load_module(self, fullname: str) -> "ModuleType":
        """The old way to import, which older packages still go."""
        from importlib._bootstrap import _load_module_shim  # type: ignore[attr-defined]  # as importlib.abc does

        return _load_module_shim(self, fullname)  # type: ignore[no-any-return]

    def get_source(self, fullname: str) -> str | None:
        """The text whose lines the code's line numbers mean, or None if it was left out of the build.

        ImportError, which whoever shows lines goes on without, also where the archive can't be read any more.
        """
        try:
            return self.archive.members.original(self._path(fullname))
        except BundleError as error:
            raise ImportError(str(error), name=fullname) from error

    def get_data(self, path: str) -> bytes:
        """The content of a file in the archive, by a path made from `__file__`. OSError if there is none."""
        return self.archive.members.read(path)

    def get_filename(self, fullname: str) -> str:
        """What is `__file__` in that module."""
        return self.archive.prefix + self._path(fullname)

    def is_package(self, fullname: str) -> bool:
        """Whether that module is a package. ImportError if there is no such module."""
        return self._entry(fullname)[3]

    def get_resource_reader(self, fullname: str) -> "Reader":
        """For importlib.resources: the files beside that module."""
        from trainer_boot.resources import Reader

        return Reader(self.archive, self._path(fullname).rpartition("/")[0])

    def _entry(self, name: str) -> "ModuleEntry":
        try:
            return self.modules[name]
        except KeyError:
            raise ImportError(f"no module {name!r} in {self.archive.path}", name=name) from None

    def _path(self, name: str) -> str:
        return path_of(name, self._entry(name)[3])


class BundleFinder:
    """On `sys.meta_path`, for one archive."""

    def __init__(self, loader: BundleLoader, index: "Index") -> None:
        self.archive = loader.archive
        self.loader = loader
        self.entry, self.namespaces, self.modules = index

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        """The spec of a bundled module, or None. `path` is the parent's `__path__`."""
        entry = self.modules.get(fullname)
        if entry is None:
            return self._no_module(fullname, path)
        filename = self.archive.prefix + path_of(fullname, entry[3])
        if path is not None:
            folder = filename[: filename.rindex("/", 0, -12 if entry[3] else None)]
            if next(iter(path), None) != folder:  # else PathFinder asks each of its folders, in their order
                return None
        spec = BundleSpec(fullname, self.loader, origin=filename, is_package=entry[3])
        spec.has_location = True
        if entry[3]:
            spec.submodule_search_locations = [filename[:-12]]  # less "/__init__.py"
        return spec

    def find_distributions(self, context: "DistributionFinder.Context") -> "Iterable[Distribution]":
        """For importlib.metadata."""
        from trainer_boot.metadata import find

        return find(self.archive, context)

    def iter_modules(self, prefix: str = "") -> "Iterator[tuple[str, bool]]":
        """For pkgutil: the top-level modules."""
        for name, entry in self.modules.items():
            if "." not in name:
                yield prefix + name, entry[3]

    def path_hook(self, path: str) -> "FolderFinder":
        """For `sys.path_hooks`: a finder for a folder of the archive, which is what `__path__` and pkgutil ask for."""
        if not (path + "/").startswith(self.archive.prefix):
            raise ImportError(f"{path} is not a folder of {self.archive.path}", path=path)
        from trainer_boot.paths import FolderFinder

        return FolderFinder(self, path[len(self.archive.prefix) :].strip("/"))

    def _no_module(self, name: str, path: "Sequence[str] | None") -> ModuleSpec | None:
        """Of what is no bundled module there are namespace packages, and modules of Python's that know files only."""
        if name in MENDED:
            from trainer_boot.mending import spec_of

            return spec_of(self, name, path)
        if path is None:
            if name in self.namespaces:
                from trainer_boot.namespaces import spread

                return spread(self, name)
        else:
            top = name.partition(".")[0]
            if top in self.modules or top in self.namespaces:
                from trainer_boot.namespaces import nested

                return nested(self, name, path)
        return None


def running() -> "BundleFinder | None":
    """The Finder of the archive that this process was started from; None in a checkout."""
    return next((finder for finder in sys.meta_path if isinstance(finder, BundleFinder)), None)


def name_of(place: str) -> str:
    """The path of the archive that was started as `place`. Where that is a descriptor of the parent process, since no
    file has the parent's build any more, it is the name that the parent knows."""
    named = os.environ.get(BUILD_VARIABLE, "") if place.startswith("/proc/") else ""
    return named.partition(" ")[2] or os.path.abspath(place)


def install(place: str, descriptor: int, start: bytes, index: bytes | None, section: int, child: bool) -> BundleFinder:
    """Puts the Finder of the archive at `place` (as `sys.path` has it) to work and takes the archive off `sys.path`.

    `start` is how the archive begins. `index` is that of the code section at `section`, or None if there is none for
    this Python: then modules are compiled from the text in the archive. `child`: multiprocessing started this process.
    BundleError if the archive was changed.
    """
    archive = Archive(name_of(place), descriptor, start[:HEADER_SIZE])
    if index is None:
        from trainer_boot.integrity import require_untouched, tell_who_is_served
        from trainer_boot.members import SourceLoader, names_only

        require_untouched(archive, descriptor)
        if BUILD_VARIABLE not in os.environ:  # else a process of this job has told it
            tell_who_is_served(archive)
        contents = names_only(archive)
        loader: BundleLoader = SourceLoader(archive, contents[2], 0)
    else:
        contents = marshal.loads(index)
        loader = BundleLoader(archive, contents[2], section)
    finder = BundleFinder(loader, contents)
    _clear_the_way(finder)
    _label_boot_modules(finder)
    sys.path[:] = [entry for entry in sys.path if entry not in (place, archive.path)]
    for entry in {place, archive.path}:
        sys.path_importer_cache.pop(entry, None)  # zipimport's: who adds the archive to `sys.path` again gets ours
    sys.path_hooks.insert(0, finder.path_hook)
    sys.meta_path.insert(sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else 0, finder)
    if not _untouched(archive, descriptor, start):
        from trainer_boot.integrity import require_untouched

        require_untouched(archive, descriptor)
    if VERIFY_VARIABLE in os.environ:
        from trainer_boot.integrity import require_whole

        require_whole(archive, descriptor, os.environ[VERIFY_VARIABLE])
    _same_build_as_parent(archive, child)
    if any(name in sys.modules for name in finder.namespaces):
        from trainer_boot.namespaces import join

        join(finder)
    if any(name in sys.modules for name in MENDED):
        from trainer_boot.mending import mend

        mend(finder)
    return finder


def hand_over(began: int) -> None:
    """Runs the entry that the build has named; ends with its result as the exit status. `began`: when the first line of
    the archive ran, for the start report."""
    finder = running()
    assert finder is not None
    sys.modules["trainer_boot"].began = (began, monotonic_ns())  # type: ignore[attr-defined]  # read by `report`
    if sys.version_info < (3, 13) and sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_exception
    module, _, function = finder.entry.partition(":")
    try:
        __import__(module)
        if function:
            sys.exit(getattr(sys.modules[module], function)())
    except BundleError as error:
        sys.stderr.write(f"error: {error.what}\nfix: {error.fix}\n")
        sys.exit(1)


def _print_exception(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    """The interpreter's own, which before 3.13 looks for source lines in files only."""
    try:
        import traceback

        traceback.print_exception(kind, error, trace)
    except Exception:  # no memory, no file: then without source lines
        sys.__excepthook__(kind, error, trace)


def _clear_the_way(finder: BundleFinder) -> None:
    """The rule in the module's docstring, where something of that name is there already."""
    tops = {name for name in finder.modules if "." not in name}
    hidden = tops & sys.stdlib_module_names
    if hidden:
        served = {name: entry for name, entry in finder.modules.items() if name.partition(".")[0] not in hidden}
        finder.modules = served
    for top in tops - hidden - {"trainer_boot"}:
        if top in sys.modules:
            for name in [name for name in sys.modules if name == top or name.startswith(top + ".")]:
                del sys.modules[name]


def _label_boot_modules(finder: BundleFinder) -> None:
    """The modules that were loaded before there was a Finder get what it would have given them."""
    package = sys.modules["trainer_boot"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "trainer_boot"]:
        module, spec = sys.modules[name], finder.find_spec(name)
        if spec is None:
            continue
        module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
        if module is package:
            module.__path__ = spec.submodule_search_locations or []
        else:
            setattr(package, name.partition(".")[2], module)


def _untouched(archive: Archive, descriptor: int, start: bytes) -> bool:
    """Are the header, the members that Python read without looking at a checksum, and the table of contents, which has
    a CRC of every file, those that the build wrote?"""
    head = archive.head
    size, offset, main_size = word(head, "size"), word(head, "tail_offset"), word(head, "main_size")
    tail = pread(descriptor, size - offset + 1, offset)  # one more, to see that it ends there
    return (
        check(head[:HEADER_CHECK]) == head[HEADER_CHECK:]
        and check(start[HEADER_SIZE : HEADER_SIZE + main_size]) == head[MAIN_CHECK : MAIN_CHECK + 8]
        and len(tail) == size - offset
        and check(tail) == head[TAIL_CHECK : TAIL_CHECK + 8]
    )


def _same_build_as_parent(archive: Archive, child: bool) -> None:
    """Children by spawn open the file anew; what their parent sends them belongs to the parent's build."""
    build = archive.head[HEADER_CHECK:].hex() + " " + archive.path
    parent = os.environ.get(BUILD_VARIABLE, "") if child else ""
    if parent != build and parent.endswith(" " + archive.path):
        raise BundleError(f"{archive.path} has changed since the parent process started", RESTART)
    os.environ[BUILD_VARIABLE] = build
