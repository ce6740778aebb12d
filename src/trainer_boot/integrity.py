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

FIX = "Copy or build the file again (python -m build)."
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
        changed = _appended(descriptor, size) or ", ".join(_changed(archive, descriptor)) or "its table of contents"
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
                f"Start the file that was meant, or set {VERIFY_VARIABLE} to {found}.",
            )
    elif wanted == "all":
        if not content_is_whole(archive, descriptor):
            raise BundleError(f"{archive.path} differs from the digest of its content", FIX)
    elif wanted:
        raise BundleError(
            f"{VERIFY_VARIABLE} is {wanted!r}",
            f"Set {VERIFY_VARIABLE} to all or to the SHA-256 of the file, or unset it.",
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


def _appended(descriptor: int, size: int) -> str:
    """What was put behind a file of that size, where that is a zip of its own or nothing that Python reads; or ""."""
    more = os.fstat(descriptor).st_size - size
    if more <= 0:
        return ""
    told = f"{more:,} bytes were appended"
    try:
        end, present = _end_of_zip(descriptor), _contents(descriptor)
    except (ValueError, OSError):
        return told
    if end < size:  # the build's own
        return told
    if any(offset < size for _, offset in present.values()):  # a zip tool has written its table anew
        return ""
    main = next((name for name in ("__main__.pyc", "__main__.py") if name in present), "")
    return f"{told}, a zip" + (f" whose {main} Python runs in place of the trainer" if main else "")


def _end_of_zip(descriptor: int) -> int:
    """Where the end record lies that a zip reader takes for the file's. ValueError where there is none."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - 66000)  # the end record and the longest comment
    return start + pread(descriptor, size - start, start).rindex(_END)


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
    """Path -> CRC and offset of the member, as Python sees them now: by the last end record, wherever the zip that it
    belongs to begins. ValueError if it is no zip."""
    at = _end_of_zip(descriptor)
    end = pread(descriptor, 22, at)
    length, offset = (int.from_bytes(end[i : i + 4], "little") for i in (12, 16))
    begins = at - length - offset
    if begins < 0:
        raise ValueError("no zip")
    directory = pread(descriptor, length, at - length)
    found = {}
    at = 0
    while directory[at : at + 4] == _CENTRAL:
        name, extra, comment = (int.from_bytes(directory[at + i : at + i + 2], "little") for i in (28, 30, 32))
        crc, member = (int.from_bytes(directory[at + i : at + i + 4], "little") for i in (16, 42))
        found[directory[at + 46 : at + 46 + name].decode(errors="replace")] = (crc, begins + member)
        at += 46 + name + extra + comment
    return found
