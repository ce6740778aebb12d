"""Records which libraries the dynamic linker has loaded for which module, from where and in which order.

The order is that of the linker: breadth first, from what was opened. Left out is whatever could be found elsewhere the
next time: variants for one kind of processor, two libraries of one name, names that are no paths.
"""

import os

from trainer_boot import parallel
from trainer_boot.libraries import CACHE, NOTHING, linker_cache, unusual

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_boot.libraries import Chain, Libraries

GLOBAL_DEPENDENCIES = "torch/lib/libtorch_global_deps.so"  # what torch opens before its own extension module
NEEDED, STRTAB, SONAME = 1, 5, 14
PATHS = (15, 29)
# a library that stands in for another one changes the order
FILTERS = (0x7FFFFFFD, 0x7FFFFFFF)
LONGEST_NAME = 8192


class Ambiguous(Exception):
    """Where the linker finds it may change."""


class Library:
    """A loaded object: its path as the linker has it, its own name, the names that it needs, the folders where it wants
    them looked for, its kind of processor."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.soname = ""
        self.needed: list[str] = []
        self.folders: list[str] = []
        with open(path, "rb") as file:
            self._read(file.fileno())

    def _read(self, descriptor: int) -> None:
        head = os.pread(descriptor, 64, 0)
        if head[:6] != b"\x7fELF\x02\x01":
            raise Ambiguous(f"{self.path} is no object of 64 bits, little-endian")
        self.machine, self.flags = head[18:20], head[48:52]
        at, size, count = _number(head, 32, 8), _number(head, 54, 2), _number(head, 56, 2)
        table = os.pread(descriptor, size * count, at)
        loads, dynamic = [], b""
        for start in range(0, len(table), size):
            kind, offset = _number(table, start, 4), _number(table, start + 8, 8)
            address, length = _number(table, start + 16, 8), _number(table, start + 32, 8)
            if kind == 1:
                loads.append((address, length, offset))
            elif kind == 2:
                dynamic = os.pread(descriptor, length, offset)
        tags = [(_number(dynamic, at, 8), _number(dynamic, at + 8, 8)) for at in range(0, len(dynamic), 16)]
        text = next(value for tag, value in tags if tag == STRTAB)
        text_at = next(offset + text - address for address, length, offset in loads if 0 <= text - address < length)
        for tag, value in tags[: next((n for n, each in enumerate(tags) if not each[0]), len(tags))]:
            if tag in FILTERS:
                raise Ambiguous(f"{self.path} stands in for another library")
            if tag in (NEEDED, SONAME, *PATHS):
                name = os.fsdecode(os.pread(descriptor, LONGEST_NAME, text_at + value).partition(b"\0")[0])
                if tag == NEEDED:
                    self.needed.append(name)
                elif tag == SONAME:
                    self.soname = name
                else:
                    origin = os.path.dirname(self.path)
                    self.folders += name.replace("${ORIGIN}", origin).replace("$ORIGIN", origin).split(":")


def record(extensions: "Mapping[str, str]", sites: "Sequence[str]", previous: "Libraries | None" = None) -> "Libraries":
    """Of this process. `extensions`: name and path of extension modules that may be loaded. `previous`: what another
    process has recorded of the same environment, which is kept."""
    if unusual():
        return NOTHING
    try:
        found = _record(extensions, sites)
    except Exception:  # a linker that is another one in some way: then it does the work, as ever
        found = NOTHING
    if previous is None or previous[0] != linker_cache():
        return found
    if found[:3] != previous[:3]:
        return previous
    return (*found[:3], {**previous[3], **found[3]}, {**previous[4], **found[4]})


def _record(extensions: "Mapping[str, str]", sites: "Sequence[str]") -> "Libraries":
    cache = linker_cache()
    with open(CACHE, "rb") as file:
        listing = file.read()
    paths = loaded()
    libraries: dict[str, Library] = {}
    by_name: dict[str, list[str]] = {}
    read = parallel.each(_library, paths)
    for number, path in enumerate(paths):
        library = read[number]
        if library is None:
            continue
        libraries[path] = library
        for name in {path, library.soname or os.path.basename(path)}:
            by_name.setdefault(name, []).append(path)
    roots = {path: name for name, path in extensions.items()}
    roots.update({f"{site}/{GLOBAL_DEPENDENCIES}": "torch" for site in sites})
    chains: dict[str, tuple[Chain, Chain]] = {}
    before: set[str] = set()
    for path in paths:  # in the order of loading
        if path in roots and path in libraries:
            try:
                chain = _chain(path, libraries, by_name)
            except Ambiguous:
                continue
            fresh = [each for each in chain[1:] if each not in before]
            before.update(chain)
            if any(each.startswith(f"{site}/") for each in fresh for site in sites):
                earlier = paths[: paths.index(path)]
                given = [each for each in chain if each in earlier and not _is_found(each, chain, libraries, listing)]
                chains[roots[path]] = chain, tuple(given)
    if not chains or b"/glibc-hwcaps/" in listing:  # libraries for some kinds of processors only
        return NOTHING
    kinds = {(libraries[path].machine, libraries[path].flags) for chain, _ in chains.values() for path in chain}
    if len(kinds) != 1 or cache != linker_cache():
        return NOTHING
    ((machine, flags),) = kinds
    names = {path: library.soname or os.path.basename(path) for path, library in libraries.items()}
    return cache, machine, flags, chains, names


def own_name(path: str) -> str:
    """What the linker knows the library by, besides its path."""
    library = _library(path)
    return library.soname if library and library.soname else os.path.basename(path)


def _library(path: str) -> Library | None:
    try:
        return Library(path)
    except (OSError, Ambiguous, StopIteration):
        return None


def loaded() -> list[str]:
    """The paths of the objects in this process, in the order of loading, as the linker has them."""
    import ctypes

    class Information(ctypes.Structure):
        """The beginning of what dl_iterate_phdr tells of each."""

        _fields_ = (("address", ctypes.c_size_t), ("name", ctypes.c_char_p))

    found: list[str] = []

    def note(information: "ctypes._Pointer[Information]", size: int, data: object) -> int:
        name = os.fsdecode(information.contents.name or b"")
        if name.startswith("/") and not name.startswith("/proc/"):
            found.append(name)
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Information), ctypes.c_size_t, ctypes.c_void_p)
    ctypes.CDLL(None).dl_iterate_phdr(kind(note), None)
    return found


def _chain(root: str, libraries: "Mapping[str, Library]", by_name: "Mapping[str, list[str]]") -> "Chain":
    """The object and all that it needs, breadth first, each once."""
    chain = [root]
    for path in chain:
        if "/glibc-hwcaps/" in path or "/tls/" in path or any(mark in path for mark in (":", ";", "$")):
            raise Ambiguous(path)
        for name in libraries[path].needed:
            candidates = by_name.get(name, [])
            if len(candidates) != 1:
                raise Ambiguous(name)
            if candidates[0] not in chain:
                chain.append(candidates[0])
    return tuple(chain)


def _is_found(path: str, chain: "Chain", libraries: "Mapping[str, Library]", listing: bytes) -> bool:
    """Whether the linker would find that library of the system even if it had not been loaded before: it is in the
    system's list, and none of those that may need it has a folder of its own with such a name in it."""
    if b"\0" + os.fsencode(path) + b"\0" not in listing:
        return False
    name = os.path.basename(path)
    folders = {folder for each in chain for folder in libraries[each].folders if folder}
    return not any("$" in folder or os.path.lexists(f"{folder}/{name}") for folder in folders)


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
