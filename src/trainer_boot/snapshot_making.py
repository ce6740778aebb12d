"""Makes a snapshot from what a process has imported; snapshot_choice says which of it."""

import marshal
import os
import sys
import time
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source

from trainer_boot import libraries_making
from trainer_boot.layout import check
from trainer_boot.libraries import NOTHING
from trainer_boot.snapshot_choice import Found, choose
from trainer_boot.snapshot_format import HEADER_SIZE, Aside, Index, header, pack_index
from trainer_boot.snapshot_key import identity, place, places, records, source_path
from trainer_boot.snapshot_place import Lock, file_in, make_folder, prune, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trainer_boot.snapshot_format import Place, Reader

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
        if previous is not None and previous.index.places != before:
            previous = None
        digest, listed = records(sites)
        index = Index(identity(sites), digest, before, {}, {}, NOTHING)
        found = _taken_over(index, previous) if previous else []
        known = {each.name for each in found} | set(index.extensions)
        names = [name for name in (list(sys.modules) if modules is None else modules) if name not in known]
        folders = [each[0] for each in before]
        chosen = [each for each in choose(names, sites, listed) if each.folder in folders]
        _add_extensions(index, [each for each in chosen if each.is_extension])
        found += [each for each in chosen if not each.is_extension]
        paths = {name: f"{folders[number]}/{file}" for name, (number, file, *_) in index.extensions.items()}
        index.libraries = libraries_making.record(paths, sites, previous.index.libraries if previous else None)
        write(path, lambda descriptor: _write(descriptor, index, found, previous, end))
        prune(folder, path)
    finally:
        lock.release()
    return path


def _taken_over(index: Index, previous: "Reader") -> "list[Found]":
    """What a snapshot of the same environment has, in its order."""
    index.extensions.update(previous.index.extensions)
    found = []
    for name, (number, _, _, _, is_package, *_) in previous.index.modules.items():
        folder = index.places[number][0]
        found.append(Found(name, folder, source_path(folder, name, is_package)[len(folder) + 1 :], is_package, False))
    return found


def _add_extensions(index: Index, found: "list[Found]") -> None:
    numbers = {each[0]: number for number, each in enumerate(index.places)}
    for each in found:
        status = os.stat(f"{each.folder}/{each.file}")
        index.extensions[each.name] = (numbers[each.folder], each.file, status.st_mtime_ns, status.st_size)


def _write(descriptor: int, index: Index, found: "list[Found]", previous: "Reader | None", end: float | None) -> None:
    """The whole file; code that `previous` has is taken from there. Aside if the environment has changed meanwhile."""
    numbers = {each[0]: number for number, each in enumerate(index.places)}
    known = previous.index.modules if previous else {}
    offset, fresh = HEADER_SIZE, 0
    with open(descriptor, "wb", buffering=1 << 20, closefd=False) as file:
        file.write(bytes(HEADER_SIZE))
        for each in found:
            path = f"{each.folder}/{each.file}"
            old = known.get(each.name)
            taken = previous.blob(old) if previous and old else None
            blob: bytes | memoryview
            if old is not None and taken is not None:
                blob, said = taken, old[3:]
            elif end is not None and time.monotonic() > end:
                break
            else:
                status = os.stat(path)
                code = _blob(each.name, path, status)
                if code is None:
                    continue
                blob, said = code, (check(code), each.is_package, status.st_mtime_ns, status.st_size)
                fresh += 1
            index.modules[each.name] = (numbers[each.folder], offset, len(blob), *said)
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
