"""The snapshot's file: a header, code in the order of loading, an index. Code, so only trusted files are opened.

Header: signature, magic number of the code, offset and size and check of the index, size of the file; a check of all
that. The index carries a check of each blob. Nothing is unmarshalled before the magic number and the check were
compared: code of another Python crashes the one that reads it.
"""

import marshal
import os
from importlib.util import MAGIC_NUMBER

from trainer_boot.layout import check, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.libraries import Libraries
    from trainer_boot.prefetch import Pages
    from trainer_boot.snapshot_entry_points import Texts
    from trainer_boot.snapshot_generated import Part

    # number of its folder among the places; offset, size, check of the code; is a package; time and size of the source
    ModuleEntry = tuple[int, int, int, bytes, bool, int, int]
    # number of its folder; path in it, time and size of the shared object
    ExtensionEntry = tuple[int, str, int, int]
    # a folder: path, time of change in nanoseconds, size, links, digest of the names in it
    Place = tuple[str, int, int, int, str]

SIGNATURE = b"TRNRSNP\x03"
WORDS = 4
CHECK_AT = len(SIGNATURE) + 8 + 8 * WORDS
HEADER_SIZE = CHECK_AT + 8
READ_AHEAD = 1 << 18
GROUP_OR_OTHERS_WRITE = 0o022


class Aside(Exception):
    """Why there is no serving from a snapshot; `remake`: a new one would do."""

    def __init__(self, why: str, remake: bool = True) -> None:
        super().__init__(why)
        self.why = why
        self.remake = remake


class Index:
    """What a snapshot says of itself: for which environment it was made, and where in it which module lies.

    `identity`, `records`: as snapshot_key has them. `places`: the folders it was made from. `extensions`: extension
    modules, of which only the place is known. `libraries`: what they need, as trainer_boot.libraries has it.
    `pages`: what a start touches of them, as trainer_boot.prefetch has it. `texts`: the distributions' entry points.
    `generated`: where what was made of texts lies, as trainer_boot.snapshot_generated has it.
    """

    __slots__ = ("extensions", "generated", "identity", "libraries", "modules", "pages", "places", "records", "texts")

    def __init__(
        self,
        identity: str,
        records: str,
        places: "tuple[Place, ...]",
        modules: "dict[str, ModuleEntry]",
        extensions: "dict[str, ExtensionEntry]",
        libraries: "Libraries",
        pages: "tuple[Pages, ...]",
        texts: "Texts",
        generated: "tuple[Part, Part]",
    ) -> None:
        self.identity = identity
        self.records = records
        self.places = places
        self.modules = modules
        self.extensions = extensions
        self.libraries = libraries
        self.pages = pages
        self.texts = texts
        self.generated = generated


class Reader:
    """An open snapshot. Reads by position, so forked children may go on using it."""

    def __init__(self, path: str, descriptor: int, index: Index, size: int) -> None:
        self.path = path
        self.index = index
        self.size = size
        self._descriptor = descriptor
        self._file = _file_of(descriptor)
        self._window = (0, memoryview(b""))

    def blob(self, entry: "ModuleEntry") -> memoryview | None:
        """The marshalled code; None where the bytes are not what was written. Read ahead: it lies in load order."""
        _, offset, size, expected, *_ = entry
        start, window = self._window
        if not (start <= offset and offset + size <= start + len(window)):
            try:
                window = memoryview(os.pread(self._descriptor, max(size, READ_AHEAD), offset))
            except OSError:  # closed by code that closes all it finds; stale on NFS
                return None
            start = offset
            self._window = (start, window)
        data = window[offset - start : offset - start + size]
        return data if check(data) == expected else None  # type: ignore[arg-type]  # any buffer will do

    def part(self, place: "Part") -> bytes:
        """Of what was made of texts; nothing where the bytes are not what was written."""
        offset, size, expected = place
        try:
            data = os.pread(self._descriptor, size, offset)
        except OSError:
            return b""
        return data if check(data) == expected else b""

    def is_cold(self) -> bool:
        """Whether one of a few pages of the code is not in memory."""
        from trainer_boot.prefetch import is_absent

        return any(is_absent(self._descriptor, self.size * eighths // 8) for eighths in (1, 4, 6))

    def close(self) -> None:
        """Nothing can be read afterwards. Leaves the descriptor alone where it has become somebody else's."""
        if _file_of(self._descriptor) == self._file:
            os.close(self._descriptor)
            self._descriptor = -1
        self._window = (0, memoryview(b""))


def _file_of(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def header(index: bytes, offset: int) -> bytes:
    """The first bytes of a file whose index lies at `offset`, as its last part."""
    head = SIGNATURE + MAGIC_NUMBER.ljust(8, b"\0")
    head += b"".join(number.to_bytes(8, "little") for number in (offset, len(index), offset + len(index)))
    head += check(index)
    return head + check(head)


def pack_index(index: Index) -> bytes:
    """As it lies in the file."""
    facts = (index.identity, index.records, index.places)
    return pack((*facts, index.modules, index.extensions, index.libraries, index.pages, index.texts, index.generated))


def open_snapshot(path: str) -> Reader:
    """Opens it without following a link. Aside where there is none, it is damaged, or others could have written it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise Aside("there is none yet") from None
    except OSError as error:
        raise Aside(f"{path} can't be opened: {error.strerror}") from None
    try:
        size = _trusted_size(path, descriptor)
        index = _read_index(path, descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return Reader(path, descriptor, index, size)


def _trusted_size(path: str, descriptor: int) -> int:
    status = os.fstat(descriptor)
    if status.st_mode & 0o170000 != 0o100000:
        raise Aside(f"{path} is not a regular file")
    if status.st_uid not in (os.geteuid(), 0):
        raise Aside(f"{path} belongs to another user ({status.st_uid})")
    if status.st_mode & GROUP_OR_OTHERS_WRITE:
        raise Aside(f"{path} can be written by others (mode {status.st_mode & 0o777:o})")
    return status.st_size


def _read_index(path: str, descriptor: int, size: int) -> Index:
    try:
        head = os.pread(descriptor, HEADER_SIZE, 0)
        if len(head) < HEADER_SIZE or head[:8] != SIGNATURE or check(head[:CHECK_AT]) != head[CHECK_AT:]:
            raise Aside(f"{path} is damaged: its header")
        if head[8:16] != MAGIC_NUMBER.ljust(8, b"\0"):
            raise Aside(f"{path} holds code of another Python")
        offset, length, whole = (int.from_bytes(head[at : at + 8], "little") for at in (16, 24, 32))
        data = os.pread(descriptor, length, offset) if whole == size else b""
    except OSError as error:
        raise Aside(f"{path} can't be read: {error.strerror}") from None
    if len(data) != length or check(data) != head[40:48]:
        raise Aside(f"{path} is damaged: its index")
    return Index(*marshal.loads(data))
