"""Makes a snapshot from what a process has imported.

In it: modules that the RECORD of a distribution lists, with Python source, where the path finder looks first. Not in
it: what is editable or was put beside the distributions by hand (nothing would show that it changed), extension
modules, what the archive brings along, and distutils, which setuptools answers for.
"""

import marshal
import os
import sys
import time
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source
from types import ModuleType

from trainer_boot.layout import check
from trainer_boot.snapshot_format import HEADER_SIZE, Aside, Index, header, pack_index
from trainer_boot.snapshot_key import identity, place, places, records, source_path
from trainer_boot.snapshot_place import Lock, file_in, make_folder, prune, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trainer_boot.snapshot_format import Place, Reader

    # name, folder, is a package
    Found = tuple[str, str, bool]

SETTLED_SECONDS = 2.0
PYC_HEADER = 16


def make(
    modules: "Iterable[str] | None",
    sites: "Sequence[str]",
    cache: str | None = None,
    seconds: float | None = None,
    previous: "Reader | None" = None,
) -> str:
    """Writes the snapshot of these modules (None: those that this process has imported) and returns its path.

    `sites`: the site-packages folders, in the order of sys.path. `cache`: the folder to write to (None: the usual
    one). `previous`: what is in this one is taken over from it. After `seconds` no more is added, and what there is has
    to do. Aside where there can be none now; OSError.
    """
    end = None if seconds is None else time.monotonic() + seconds
    folder = make_folder(cache)
    path = file_in(folder, identity(sites))
    lock = Lock(path)
    if not lock.take():
        raise Aside("another process is making one", remake=False)
    try:
        before = places(sites)
        _require_settled(before)
        digest, listed = records(sites)
        found = list(choose(list(sys.modules) if modules is None else modules, sites, listed))
        index = Index(identity(sites), digest, before, {})
        if previous is not None and previous.index.places != before:
            previous = None
        write(path, lambda descriptor: _write(descriptor, index, found, previous, end))
        prune(folder, path)
    finally:
        lock.release()
    return path


def choose(names: "Iterable[str]", sites: "Sequence[str]", listed: dict[str, set[str]]) -> "Iterator[Found]":
    """Those of the modules that belong into a snapshot. `listed`: as snapshot_key.records gives it."""
    tops: dict[str, str | None] = {}
    for name in names:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top == "distutils":
            continue
        if top not in tops:
            tops[top] = _site_of(top, sites)
        site = tops[top]
        if site is None:
            continue
        stem = name.replace(".", "/")
        is_package = stem + "/__init__.py" in listed[site]
        is_module = stem + ".py" in listed[site] and not any(stem + each in listed[site] for each in EXTENSION_SUFFIXES)
        origin = _origin(name)
        # some replace themselves in sys.modules and have none
        is_ours = origin is None or origin == source_path(site, name, is_package)
        if is_ours and (is_package or is_module):
            yield name, site, is_package


def _site_of(top: str, sites: "Sequence[str]") -> str | None:
    """The folder from which a top-level module comes."""
    origin = _origin(top)
    if origin is None and top not in sys.modules:
        spec = PathFinder.find_spec(top)
        origin = spec.origin if spec else None
    for site in sites:
        if origin in (source_path(site, top, False), source_path(site, top, True)):
            # the whole package by a link: editable in the manner of some tools
            return None if os.path.islink(f"{site}/{top}") else site
    return None


def _origin(name: str) -> str | None:
    """Where the imported module of that name was loaded from, without waking a lazy one."""
    module = sys.modules.get(name)
    if not issubclass(type(module), ModuleType):
        return None
    spec = object.__getattribute__(module, "__dict__").get("__spec__")
    origin: str | None = getattr(spec, "origin", None)
    return origin


def _write(descriptor: int, index: Index, found: "list[Found]", previous: "Reader | None", end: float | None) -> None:
    """The whole file: first what `previous` has, in its order. Aside if the environment has changed meanwhile."""
    numbers = {each[0]: number for number, each in enumerate(index.places)}
    known = previous.index.modules if previous else {}
    offset, fresh = HEADER_SIZE, 0
    with open(descriptor, "wb", buffering=1 << 20, closefd=False) as file:
        file.write(bytes(HEADER_SIZE))
        for name, site, is_package in sorted(found, key=lambda each: each[0] not in known):
            old = known.get(name)
            taken = previous.blob(old) if previous and old else None
            blob: bytes | memoryview
            if old is not None and taken is not None:
                blob, facts = taken, old[3:]
            elif end is not None and time.monotonic() > end:
                break
            else:
                path = source_path(site, name, is_package)
                status = os.stat(path)
                code = _blob(name, path, status)
                if code is None:
                    continue
                blob, facts = code, (check(code), is_package, status.st_mtime_ns, status.st_size)
                fresh += 1
            index.modules[name] = (numbers[site], offset, len(blob), *facts)
            file.write(blob)
            offset += len(blob)
        packed = pack_index(index)
        file.write(packed)
    if not fresh:
        raise Aside("nothing could be added to it", remake=False)
    os.pwrite(descriptor, header(packed, offset), 0)
    if tuple(_places_now(index)) != index.places:
        raise Aside("the environment has changed meanwhile")


def _places_now(index: Index) -> "Iterator[Place]":
    for path, *_, names in index.places:
        yield place(path, names)


def _blob(name: str, path: str, status: os.stat_result) -> bytes | None:
    """The marshalled code: from the cached file if it belongs to the source, else compiled."""
    try:
        with open(cache_from_source(path), "rb") as file:
            data = file.read()
    except OSError:
        data = b""
    words = (0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    if data[:PYC_HEADER] == MAGIC_NUMBER + b"".join(word.to_bytes(4, "little") for word in words):
        return data[PYC_HEADER:]
    try:
        code = SourceFileLoader(name, path).get_code(name)
    except (ImportError, SyntaxError, OSError):
        return None
    return marshal.dumps(code)


def _require_settled(before: "tuple[Place, ...]") -> None:
    """A change within the grain of the file system's clock would not show."""
    for path, changed, *_ in before:
        if abs(time.time() - changed / 1e9) < SETTLED_SECONDS:
            raise Aside(f"{path} has just changed")
