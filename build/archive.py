"""A zip, written by hand: the reader needs to know where each byte lies, and no byte may depend on place or time."""

import zlib

from trainer_boot.layout import DEFLATED, STORED, FileEntry

_EPOCH = (1980 - 1980) << 9 | 1 << 5 | 1  # the first day that a zip can name
_MODE = 0o100644 << 16
_MADE_BY_UNIX = 3 << 8 | 20
_LIMIT = (1 << 31) - 1
_MOST_FILES = 65535


def deflated(data: bytes, known: bytes = b"") -> bytes:
    """Raw deflate, as small as zlib makes it; `known` is what the reader has already and may be referred to."""
    # without a dictionary zlib gets none, since an empty one is an error to it
    options = (zlib.Z_BEST_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_DEFAULT_STRATEGY)
    stream = zlib.compressobj(*options, known[-32768:]) if known else zlib.compressobj(*options)
    return stream.compress(data) + stream.flush()


class Zip:
    """Members one after the other; `start` bytes will lie before the first."""

    def __init__(self, start: int) -> None:
        self.entries: dict[str, FileEntry] = {}
        self._start = start
        self._data = bytearray()
        self._directory = bytearray()

    @property
    def size(self) -> int:
        """So far, with what lies before the first member."""
        return self._start + len(self._data)

    @property
    def data(self) -> bytes:
        """So far, without what lies before."""
        return bytes(self._data)

    def add(self, path: str, content: bytes, *, store: bool = False) -> FileEntry:
        """Adds a member, compressed where that helps unless it is to be stored. ValueError if no zip can hold it."""
        packed, method = (content, STORED) if store else (deflated(content), DEFLATED)
        if len(packed) >= len(content):
            packed, method = content, STORED
        name = path.encode()
        flags = 0 if path.isascii() else 1 << 11
        offset = self.size
        crc = zlib.crc32(content)
        if offset + len(packed) > _LIMIT or len(self.entries) >= _MOST_FILES:
            raise ValueError("more than a zip can hold")
        needed = 20 if method == DEFLATED else 10
        common = _numbers((needed, 2), (flags, 2), (method, 2), (0, 2), (_EPOCH, 2), (crc, 4))
        common += _numbers((len(packed), 4), (len(content), 4), (len(name), 2), (0, 2))
        self._data += b"PK\x03\x04" + common + name + packed
        self._directory += b"PK\x01\x02" + _numbers((_MADE_BY_UNIX, 2)) + common
        self._directory += _numbers((0, 2), (0, 2), (0, 2), (_MODE, 4), (offset, 4)) + name
        self.entries[path] = (self.size - len(packed), len(packed), len(content), crc, method)
        return self.entries[path]

    def close(self) -> bytes:
        """Adds and gives the central directory and its end record."""
        count = len(self.entries)
        end = _numbers((0, 2), (0, 2), (count, 2), (count, 2), (len(self._directory), 4), (self.size, 4), (0, 2))
        tail = bytes(self._directory) + b"PK\x05\x06" + end
        self._data += tail
        return tail


def _numbers(*fields: tuple[int, int]) -> bytes:
    """Numbers and their sizes, little-endian."""
    return b"".join(value.to_bytes(size, "little") for value, size in fields)
