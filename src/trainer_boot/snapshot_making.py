"""Makes a snapshot from what a process has imported; snapshot_choice says which of it."""

import marshal
import os
import sys
import time
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source
from itertools import chain

from trainer_boot import libraries_making, parallel, prefetch_making, snapshot_entry_points, snapshot_generated
from trainer_boot.file_lock import Lock
from trainer_boot.layout import check
from trainer_boot.libraries import NOTHING
from trainer_boot.snapshot_choice import Found, choose
from trainer_boot.snapshot_format import HEADER_SIZE, Aside, Index, header, pack_index
from trainer_boot.snapshot_key import identity, place, places, records, source_path
from trainer_boot.snapshot_place import file_in, make_folder, prune, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trainer_boot.snapshot_choice import Listed
    from trainer_boot.snapshot_format import Place, Reader

    # marshalled; its check, is a package, time and size of the source
    Code = tuple[bytes, tuple[bytes, bool, int, int]]

NONE_GENERATED = (snapshot_generated.NOTHING, snapshot_generated.NOTHING)
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
    one). `previous`: what is in this one is taken over from it. After `seconds` no more code is looked for, and what
    there is has to do. Aside where there can be none now; OSError.
    """
    folder = make_folder(cache)
    path = file_in(folder, identity(sites))
    lock = Lock(path)
    if not lock.take():
        raise Aside("another process is making one", remake=False)
    try:
        before = places(sites)
        _require_settled(before)
        if previous is not None and previous.index.places != before:
            previous = None
        digest, listed = records(sites)
        texts = snapshot_entry_points.record(sites)
        index = Index(identity(sites), digest, before, {}, {}, NOTHING, (), texts, NONE_GENERATED)
        fresh = _choose(index, list(sys.modules) if modules is None else list(modules), sites, listed, previous)
        end = None if seconds is None else time.monotonic() + seconds
        codes = parallel.each(_fresh, fresh, end)
        if not any(codes.values()) and (previous is None or not snapshot_generated.lacking()):
            raise Aside("nothing could be added to it", remake=False)
        old = previous.index if previous else None
        files = {name: f"{before[number][0]}/{file}" for name, (number, file, *_) in index.extensions.items()}
        index.libraries = libraries_making.record(files, sites, old.libraries if old else None)
        index.pages = prefetch_making.record(old.pages if old else ())
        write(path, lambda descriptor: _write(descriptor, index, previous, _in_order(fresh, codes)))
        prune(folder, path)
    finally:
        lock.release()
    return path


def _choose(
    index: Index, names: list[str], sites: "Sequence[str]", listed: "Listed", previous: "Reader | None"
) -> "list[Found]":
    """Those with code that `previous` does not have; the extension modules go into the index right away."""
    numbers = {each[0]: number for number, each in enumerate(index.places)}
    if previous is not None:
        index.extensions.update(previous.index.extensions)
        names = [name for name in names if name not in index.extensions and name not in previous.index.modules]
    found = [each for each in choose(names, sites, listed) if each.folder in numbers]
    extensions = [each for each in found if each.is_extension]
    facts = parallel.each(lambda each: os.stat(f"{each.folder}/{each.file}"), extensions)
    for number, each in enumerate(extensions):
        entry = (numbers[each.folder], each.file, facts[number].st_mtime_ns, facts[number].st_size)
        index.extensions[each.name] = entry
    return [each for each in found if not each.is_extension]


def _in_order(found: "list[Found]", codes: "dict[int, Code | None]") -> "Iterator[tuple[Found, Code]]":
    for number, each in enumerate(found):
        code = codes.get(number)
        if code is not None:
            yield each, code


def _kept(previous: "Reader") -> "Iterator[tuple[Found, Code]]":
    """What a snapshot of the same environment has, in its order; from the files what is damaged in it."""
    for name, entry in previous.index.modules.items():
        folder, is_package = previous.index.places[entry[0]][0], entry[4]
        each = Found(name, folder, source_path(folder, name, is_package)[len(folder) + 1 :], is_package, False)
        blob = previous.blob(entry)
        code = _fresh(each) if blob is None else (bytes(blob), entry[3:])
        if code is not None:
            yield each, code


def _write(descriptor: int, index: Index, previous: "Reader | None", added: "Iterable[tuple[Found, Code]]") -> None:
    """The whole file. Aside if the environment has changed meanwhile."""
    numbers = {each[0]: number for number, each in enumerate(index.places)}
    offset = HEADER_SIZE
    with open(descriptor, "wb", buffering=1 << 20, closefd=False) as file:
        file.write(bytes(HEADER_SIZE))
        for each, (blob, facts) in chain(_kept(previous) if previous else (), added):
            index.modules[each.name] = (numbers[each.folder], offset, len(blob), *facts)
            file.write(blob)
            offset += len(blob)
        old = previous.index.generated if previous else NONE_GENERATED
        parts = []
        for data in snapshot_generated.packed(previous.part if previous else lambda _: b"", old):
            parts.append(snapshot_generated.part(offset, data))
            file.write(data)
            offset += len(data)
        index.generated = (parts[0], parts[1])
        packed = pack_index(index)
        file.write(packed)
    os.pwrite(descriptor, header(packed, offset), 0)
    if tuple(_places_now(index)) != index.places:
        raise Aside("the environment has changed meanwhile")


def _fresh(each: "Found") -> "Code | None":
    """From the module's files. None where there is none, or it can't be compiled."""
    path = f"{each.folder}/{each.file}"
    try:
        status = os.stat(path)
    except OSError:
        return None
    code = _blob(each.name, path, status)
    return None if code is None else (code, (check(code), each.is_package, status.st_mtime_ns, status.st_size))


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
