"""The byte format of the built file: the one module that both its reader and its writer import.

    0      `#!/usr/bin/env python3` and an empty line
    24     the header, below; zip readers skip what lies before the first member
    592    the zip: `__main__`, the text of the modules that start a Python without code here, code sections, modules
           and data, originals, the file table, the central directory

A code section serves one minor version of Python (one bytecode magic number): the code of the boot modules, the index,
then one blob a module, deflated for those that no start needs. Numbers are little-endian and unsigned; a check is what
`check` gives; CRCs are the zip's.

Header: SIGNATURE; a word of 8 bytes for each of WORDS; SLOTS slots of 8 words: magic number, offset of the section,
sizes of the boot modules' code and of the index, the check of these, the version as text; two SHA-256 digests, of all
that follows the header and of the lock; then the CRC of all that, and its check. "main" is the two members that Python
itself reads, "sources" the members that follow them, "tail" what follows the last member: the central directory and its
end record.

The index and the file table are marshalled, in a version of that format which every Python reads alike. Code is
marshalled too, and only ever read by a Python whose magic number it carries: another one may crash on it.
"""

import marshal
import sys
from _imp import source_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

# offset behind the section's index, size, check, is a package
ModuleEntry = tuple[int, int, bytes, bool]
# "package.module:function" to start (or a module alone); top-level folders of modules that have no __init__.py
# (namespace packages); modules by name
Index = tuple[str, tuple[str, ...], dict[str, ModuleEntry]]
# offset, size there, size and CRC of the content, method
FileEntry = tuple[int, int, int, int, int]
# the first two as in the index; modules by name: is it a package; members by path; by path, the authors' text of each
# module that a minifier's pass has changed: None where it was left out
FileTable = tuple[str, tuple[str, ...], dict[str, bool], dict[str, FileEntry], dict[str, FileEntry | None]]

SHEBANG = b"#!/usr/bin/env python3\n\n"
SIGNATURE = b"TRNRPYZ\x02"
WORDS = (
    "size",
    "main_size",
    "main_check",
    "sources_size",
    "sources_check",
    "tail_offset",
    "tail_check",
    "tail_crc",
    "files_offset",
    "files_size",
    "files_crc",
    "spare",
)
FIRST_WORD = len(SHEBANG) + len(SIGNATURE)
MAIN_CHECK = FIRST_WORD + 8 * WORDS.index("main_check")
TAIL_CHECK = FIRST_WORD + 8 * WORDS.index("tail_check")
FIRST_SLOT = FIRST_WORD + 8 * len(WORDS)
SLOT_SIZE = 8 * 8
SLOTS = 6
SLOT_VERSION = 7 * 8  # within a slot
CONTENT_DIGEST = FIRST_SLOT + SLOTS * SLOT_SIZE
LOCK_DIGEST = CONTENT_DIGEST + 32
HEADER_CRC = LOCK_DIGEST + 32
HEADER_CHECK = HEADER_CRC + 8
HEADER_SIZE = HEADER_CHECK + 8
START_SIZE = 16384
"""What a start reads at once: the header and `main`, which must fit."""
BOOT_MODULES = ("trainer_boot", "trainer_boot.layout", "trainer_boot.finder")
# by these a Python without code here starts: zipimport, which looks at no checksum, loads them
SOURCE_MODULES = (*BOOT_MODULES, "trainer_boot.integrity", "trainer_boot.members")

FOLDER = "_trainer/"
BUILD_INFORMATION = FOLDER + "build.json"
REQUIREMENTS = FOLDER + "requirements.json"
ENVIRONMENT = FOLDER + "environment.json"
ORIGINALS = FOLDER + "originals"
FILE_TABLE = FOLDER + "files"
BILL = FOLDER + "sbom.cdx.json"

STORED, DEFLATED = 0, 8  # as in a zip
PACKED = 0  # the first byte of a blob that is deflated behind it; marshalled code never begins so


def check(data: bytes) -> bytes:
    """Eight bytes that damaged or foreign data does not have (SipHash: built in, about a gigabyte a second)."""
    return source_hash(0, data)


def unpacked(blob: bytes) -> bytes:
    """The code in a blob: as it lies there, or deflated behind PACKED."""
    if blob[0] != PACKED:
        return blob
    import zlib

    return zlib.decompress(blob[1:], -zlib.MAX_WBITS)


def word(head: bytes, name: str) -> int:
    """The header's word of that name."""
    at = FIRST_WORD + 8 * WORDS.index(name)
    return int.from_bytes(head[at : at + 8], "little")


def pack_header(
    words: dict[str, int],
    slots: dict[bytes, list[int | bytes]],
    digests: tuple[bytes, bytes],
    crc: "Callable[[bytes], int]",
) -> bytes:
    """The first HEADER_SIZE bytes of the file.

    `slots`: magic number -> offset of the section, sizes of the boot modules' code and of the index; their check;
    the version. `digests`: SHA-256 of what follows the header, of the lock. ValueError for too many slots.
    """
    if len(slots) > SLOTS:
        raise ValueError(f"a file serves at most {SLOTS} versions of Python")
    head = SHEBANG + SIGNATURE + b"".join(_word(words.get(name, 0)) for name in WORDS)
    for magic, numbers in slots.items():
        head += b"".join(map(_word, [magic, *numbers])).ljust(SLOT_SIZE, b"\0")
    head = head.ljust(CONTENT_DIGEST, b"\0") + b"".join(digests)
    assert len(head) == HEADER_CRC
    head += _word(crc(head))
    return head + check(head)


def served(head: bytes) -> dict[str, bytes]:
    """The versions of Python that have code in the file ("3.11"), with their magic numbers."""
    found = {}
    for at in range(FIRST_SLOT, FIRST_SLOT + SLOTS * SLOT_SIZE, SLOT_SIZE):
        version = head[at + SLOT_VERSION : at + SLOT_SIZE].rstrip(b"\0").decode()
        if version:
            found[version] = head[at : at + 4]
    return found


def _word(value: int | bytes) -> bytes:
    return value.to_bytes(8, "little") if isinstance(value, int) else value.ljust(8, b"\0")


def identity(head: bytes) -> tuple[str, str]:
    """SHA-256 (hex) of all that follows the header, and of the lock: what the file is, whatever it is called."""
    return head[CONTENT_DIGEST:LOCK_DIGEST].hex(), head[LOCK_DIGEST:HEADER_CRC].hex()


def path_of(name: str, is_package: bool) -> str:
    """Where in the archive a module's text lies."""
    return name.replace(".", "/") + ("/__init__.py" if is_package else ".py")


def pack(value: "Any") -> bytes:
    """Marshals tuples, dicts, text, bytes, whole numbers, booleans and None; equal values give equal bytes."""
    # Version 2 has no back references, which depend on reference counts; the mark of interned text is set on all.
    return marshal.dumps(_interned(value), 2)


def digest(parts: "Iterable[tuple[str, bytes]]") -> str:
    """SHA-256 (hex) over names and contents, in order of the names."""
    import hashlib

    total = hashlib.sha256()
    for name, content in sorted(parts):
        for part in (name.encode(), content):
            total.update(len(part).to_bytes(8, "little"))
            total.update(part)
    return total.hexdigest()


def _interned(value: "Any") -> "Any":
    if isinstance(value, str):
        return sys.intern(value)
    if isinstance(value, tuple):
        return tuple(map(_interned, value))
    if isinstance(value, dict):
        return {_interned(key): _interned(each) for key, each in value.items()}
    return value
