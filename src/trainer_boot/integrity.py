"""Is the archive what the build wrote, and if not, which of its files are others?

Three depths. At every start: the header, what Python read by itself, the table of contents, the boot modules, and each
module's code as it is loaded, by checks of eight bytes. With TRAINER_VERIFY=all, or the SHA-256 of the one file that
may run: the whole file besides, before anything else of it. `BundleFile.damage`: everything, as it is read at run time.
"""

from __future__ import annotations

import marshal
import os
import sys
import zlib
from os import pread

from trainer_boot.finder import VERIFY_VARIABLE, Archive, BundleError
from trainer_boot.layout import (
    FILE_TABLE,
    HEADER_CHECK,
    HEADER_CRC,
    HEADER_SIZE,
    MAIN_CHECK,
    check,
    identity,
    served,
    word,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.layout import FileTable

FIX = "copy it again, or build it again (python -m build)"
CHUNK = 1 << 20
# Made at run time: as constants they would lie in the archive, where a zip reader may take them for real ones.
_CENTRAL, _END = bytes((80, 75, 1, 2)), bytes((80, 75, 5, 6))


def require_untouched(archive: Archive, descriptor: int) -> None:
    """BundleError unless header, `__main__` and table of contents, which has each file's CRC, are the build's."""
    head = archive.head
    size, offset = word(head, "size"), word(head, "tail_offset")
    if not header_is_whole(head):
        raise BundleError(f"the header of {archive.path} is damaged", FIX)
    found = os.fstat(descriptor).st_size
    tail = pread(descriptor, size - offset, offset)
    if found < size and len(tail) < size - offset:
        raise BundleError(f"{archive.path} is cut off: it has {found} of {size} bytes", FIX)
    if found != size or zlib.crc32(tail) != word(head, "tail_crc"):
        changed = ", ".join(_changed(archive, descriptor)) or "its table of contents"
        raise BundleError(f"{archive.path} was changed after it was built: {changed}", FIX)
    if check(pread(descriptor, word(head, "main_size"), HEADER_SIZE)) != head[MAIN_CHECK : MAIN_CHECK + 8]:
        raise BundleError(f"{archive.path} was changed after it was built: __main__", FIX)


def require_whole(archive: Archive, descriptor: int, wanted: str) -> None:
    """BundleError unless the whole file is as the environment variable wants it: see VERIFY_VARIABLE."""
    pinned = len(wanted) == 64 and not wanted.strip("0123456789abcdefABCDEF")
    if pinned:
        found = sha256(descriptor)
        if found != wanted.lower():
            raise BundleError(
                f"{archive.path} is not the file that may run: its SHA-256 is {found[:12]}.., "
                f"{VERIFY_VARIABLE} says {wanted[:12].lower()}..",
                f"start the file that was meant, or set {VERIFY_VARIABLE} to {found}",
            )
    elif wanted == "all":
        if not content_is_whole(archive, descriptor):
            raise BundleError(f"{archive.path} differs from the digest of its content", FIX)
    elif wanted:
        raise BundleError(
            f"{VERIFY_VARIABLE} is {wanted!r}", f"set {VERIFY_VARIABLE} to all, to a file's SHA-256, or unset it"
        )


def tell_who_is_served(archive: Archive) -> None:
    """Once a job: that this Python has no code in the file, and which have."""
    if os.environ.get("RANK", "0") == "0":
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        sys.stderr.write(
            f"note: {os.path.basename(archive.path)} has code for Python {', '.join(served(archive.head))}; under "
            f"{version} every module is compiled at every start, to the same results\n"
        )


def header_is_whole(head: bytes) -> bool:
    """Has the header its checksum and its check?"""
    crc = int.from_bytes(head[HEADER_CRC : HEADER_CRC + 8], "little")
    return zlib.crc32(head[:HEADER_CRC]) == crc and check(head[:HEADER_CHECK]) == head[HEADER_CHECK:]


def content_is_whole(archive: Archive, descriptor: int) -> bool:
    """Has all that follows the header the digest that the header names?"""
    return sha256(descriptor, HEADER_SIZE) == identity(archive.head)[0]


def sha256(descriptor: int, offset: int = 0) -> str:
    """SHA-256 (hex) of a file from `offset` to its end."""
    # OpenSSL's: for megabytes the built-in one takes longer than this import
    import hashlib

    total = hashlib.sha256()
    while data := pread(descriptor, CHUNK, offset):
        total.update(data)
        offset += len(data)
    return total.hexdigest()


def _changed(archive: Archive, descriptor: int) -> list[str]:
    """The paths that the zip's present table of contents has otherwise than the build wrote it."""
    try:
        present = _contents(descriptor)
        at = present[FILE_TABLE][1]
        name, extra = (int.from_bytes(pread(descriptor, 2, at + i), "little") for i in (26, 28))
        packed = pread(descriptor, word(archive.head, "files_size"), at + 30 + name + extra)
    except (KeyError, ValueError, OSError):
        return []
    if zlib.crc32(packed) != word(archive.head, "files_crc"):
        return [FILE_TABLE]
    table: FileTable = marshal.loads(packed)
    built = {path: entry[3] for path, entry in table[3].items()} | {FILE_TABLE: zlib.crc32(packed)}
    found = {path: crc for path, (crc, _) in present.items()}
    return sorted(path for path in found.keys() | built.keys() if found.get(path) != built.get(path))


def _contents(descriptor: int) -> dict[str, tuple[int, int]]:
    """Path -> CRC and offset of the member, as a zip reader sees them now. ValueError if it is no zip."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - 66000)  # the end record and the longest comment
    end = pread(descriptor, size - start, start)
    at = end.rindex(_END)
    length, offset = (int.from_bytes(end[at + i : at + i + 4], "little") for i in (12, 16))
    directory = pread(descriptor, length, offset)
    found = {}
    at = 0
    while directory[at : at + 4] == _CENTRAL:
        name, extra, comment = (int.from_bytes(directory[at + i : at + i + 2], "little") for i in (28, 30, 32))
        crc, member = (int.from_bytes(directory[at + i : at + i + 4], "little") for i in (16, 42))
        found[directory[at + 46 : at + 46 + name].decode()] = (crc, member)
        at += 46 + name + extra + comment
    return found
