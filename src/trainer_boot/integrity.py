"""Is the archive what the build wrote, and if not, which of its files are others?"""

from __future__ import annotations

import json
import marshal
import os
import sys
import zlib
from os import pread

from trainer_boot.finder import Archive, BundleError, BundleFinder
from trainer_boot.layout import BUILD_INFORMATION, FILE_TABLE, FOLDER, HEADER_CRC, digest, word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.layout import FileTable

_MAIN = ("__main__.py", "__main__.pyc")
# Made at run time: as constants they would lie in the archive, where a zip reader may take them for real ones.
_CENTRAL, _END = bytes((80, 75, 1, 2)), bytes((80, 75, 5, 6))


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
    """Reads every file and module of the archive: a sentence for each thing that is not as it was built.

    Besides the checks that every read makes, the contents are compared with the build information's SHA-256 digests.
    """
    archive, members = finder.archive, finder.archive.members
    found = []
    files, originals, code = {}, {}, {}
    for path in members.files:
        try:
            files[path] = members.read(path)
            if members.has_original(path):
                originals[path] = members.original_bytes(path)
        except BundleError:
            found.append(f"{path} differs from what was built")
    for name in finder.loader.modules if finder.loader.has_code else ():
        try:
            code[name] = finder.loader.stored_code(name)
        except BundleError:
            found.append(f"the code of {name} differs from what was built")
    return found or _wrong_digests(archive, files, originals, code)


def _wrong_digests(
    archive: Archive, files: dict[str, bytes], originals: dict[str, bytes], code: dict[str, bytes]
) -> list[str]:
    recorded = json.loads(files[BUILD_INFORMATION])["sha256"]
    shipped = {path: data for path, data in files.items() if not path.startswith(FOLDER) and path not in _MAIN}
    found = {"files": (recorded["files"], digest(shipped.items()))}
    if recorded["originals"] is not None:
        found["original texts"] = (recorded["originals"], digest(originals.items()))
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if code:
        found["code"] = (recorded["code"][version], digest(code.items()))
    return [
        f"the {what} of {archive.path} differ from their digest" for what, (old, new) in found.items() if old != new
    ]


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
