"""Is the archive what the build wrote, and if not, which of its files are others?"""

from __future__ import annotations

import os
import zlib
from os import pread

from trainer_boot.finder import Archive, BundleError, BundleFinder
from trainer_boot.layout import HEADER_CRC, word

_CENTRAL = b"PK\x01\x02"


def require_untouched(archive: Archive, descriptor: int) -> None:
    """BundleError unless header and table of contents, which has every file's CRC, are those of the build."""
    head = archive.head
    size, offset = word(head, "size"), word(head, "tail_offset")
    fix = "copy it again, or build it again (python -m build)"
    if zlib.crc32(head[:HEADER_CRC]) != int.from_bytes(head[HEADER_CRC : HEADER_CRC + 8], "little"):
        raise BundleError(f"the header of {archive.path} is damaged", fix)
    found = os.fstat(descriptor).st_size
    tail = pread(descriptor, size - offset, offset)
    if found == size and zlib.crc32(tail) == word(head, "tail_crc"):
        return
    if found < size and len(tail) < size - offset:
        raise BundleError(f"{archive.path} is cut off: it has {found} of {size} bytes", fix)
    changed = ", ".join(_changed(archive, descriptor)) or "its table of contents"
    raise BundleError(f"{archive.path} was changed after it was built: {changed}", fix)


def damage(finder: BundleFinder) -> list[str]:
    """Every file and module of the archive read and checked; what is wrong, a sentence each."""
    archive = finder.archive
    found = []
    for path in archive.members.files:
        try:
            archive.members.read(path)
        except BundleError:
            found.append(f"{path} differs from what was built")
    for name in finder.modules:
        try:
            finder.loader.get_code(name)
            finder.loader.get_source(name)
        except BundleError:
            found.append(f"the code or original text of {name} differs from what was built")
    return found


def _changed(archive: Archive, descriptor: int) -> list[str]:
    """The paths that the zip's present table of contents has otherwise than the build wrote it."""
    try:
        present = _contents(descriptor)
        built = {path: entry[3] for path, entry in archive.members.files.items()}
    except (BundleError, ValueError):
        return []
    return sorted(path for path in present.keys() | built.keys() if present.get(path) != built.get(path))


def _contents(descriptor: int) -> dict[str, int]:
    """Path -> CRC, as a zip reader sees them now. ValueError if it is no zip."""
    size = os.fstat(descriptor).st_size
    end = pread(descriptor, 66000, max(0, size - 66000))
    at = end.rindex(b"PK\x05\x06")
    length, offset = (int.from_bytes(end[at + i : at + i + 4], "little") for i in (12, 16))
    directory = pread(descriptor, length, offset)
    found = {}
    at = 0
    while directory[at : at + 4] == _CENTRAL:
        name, extra, comment = (int.from_bytes(directory[at + i : at + i + 2], "little") for i in (28, 30, 32))
        path = directory[at + 46 : at + 46 + name].decode()
        found[path] = int.from_bytes(directory[at + 16 : at + 20], "little")
        at += 46 + name + extra + comment
    return found
