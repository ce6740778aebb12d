"""Tree + code sections -> the bytes of the file, and these bytes to their place.

The same tree, code and facts give the same bytes, whoever builds them, where and when. One thing could differ: another
zlib may compress otherwise; hence the digests in the build information are those of the uncompressed content.
"""

import hashlib
import json
import keyword
import os
import tempfile
import zlib
from _imp import source_hash
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import trainer_boot.layout as layout
from build.archive import Zip, deflated
from build.compile import CodeSection
from build.errors import BuildError
from build.tree import Tree

ENTRY = "trainer.cli:program"
BOOT_MAIN = "trainer_boot.__main__"
FORMAT = 2


def write(
    tree: Tree,
    sections: Sequence[CodeSection],
    facts: Mapping[str, object],
    *,
    lock: bytes = b"",
    requirements: bytes = b"{}",
    bill: bytes = b"",
    environment: bytes = b"{}",
    entry: str = ENTRY,
    originals: bool = True,
) -> bytes:
    """The whole file.

    `facts` (JSON values) become part of the build information; `bill` is the bill of materials. `entry` is
    "module:function" or a module. The first section's Python starts fastest. `originals`: ship the text of minified
    modules as their authors wrote it too.
    BuildError where the tree can't be a trainer.pyz.
    """
    _check(tree, sections, entry)
    texts = {file.path: file.original or b"" for file in tree.modules() if file.data != file.original}
    archive = Zip(layout.HEADER_SIZE)
    main, sources = _add_what_python_reads(archive, tree, sections[0])
    slots = {section.interpreter.magic: _add_section(archive, tree, section, entry) for section in sections}
    for file in tree:
        if file.path not in archive.entries:
            archive.add(file.path, file.data)
    shipped = _add_originals(archive, tree, texts if originals else {})
    digests = {
        "files": layout.digest((file.path, file.data) for file in tree),
        "originals": layout.digest(texts.items()) if originals else None,
        "code": {section.interpreter.version: layout.digest(section.codes) for section in sections},
    }
    information = {**facts, "format": FORMAT, "entry": entry, "sha256": digests}
    archive.add(layout.BUILD_INFORMATION, json.dumps(information, indent=1, sort_keys=True).encode() + b"\n")
    archive.add(layout.REQUIREMENTS, requirements)
    if bill:
        archive.add(layout.BILL, bill)
    archive.add(layout.ENVIRONMENT, environment)
    packed = layout.pack(_file_table(tree, archive, entry, {path: shipped.get(path) for path in texts}))
    files_offset = archive.add(layout.FILE_TABLE, packed, store=True)[0]
    tail_offset = archive.size
    tail = archive.close()
    words = {
        "size": archive.size,
        "main_size": len(main),
        "main_check": _check_word(main),
        "sources_size": len(sources),
        "sources_check": _check_word(sources),
        "tail_offset": tail_offset,
        "tail_check": _check_word(tail),
        "tail_crc": zlib.crc32(tail),
        "files_offset": files_offset,
        "files_size": len(packed),
        "files_crc": zlib.crc32(packed),
    }
    identity = hashlib.sha256(archive.data).digest(), hashlib.sha256(lock).digest()
    return layout.pack_header(words, slots, identity, zlib.crc32) + archive.data


class Draft:
    """A file beside its final place; it goes there by `publish`, or goes away at the end of the `with`."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.path = output

    def __enter__(self) -> "Draft":
        try:
            self.output.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self.output.parent, prefix=f".{self.output.name}.", suffix=".new")
        except OSError as error:
            raise BuildError(
                f"can't write into {self.output.parent}: {error.strerror}", "give another place (--output)"
            ) from None
        os.close(descriptor)
        self.path = Path(name)
        return self

    def fill(self, data: bytes) -> None:
        """Writes the content, executable for all, down to the disk."""
        try:
            with open(self.path, "wb") as file:
                os.fchmod(file.fileno(), 0o755)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise BuildError(
                f"can't write {self.path.parent}: {error.strerror}", "make room, or give another place (--output)"
            ) from None

    def publish(self) -> None:
        """Puts it in the final place, in one step; who has the old file open keeps it."""
        try:
            self.path.replace(self.output)
        except OSError as error:
            raise BuildError(
                f"can't replace {self.output}: {error.strerror}", "give another place (--output)"
            ) from None
        folder = os.open(self.output.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.path != self.output:
            self.path.unlink(missing_ok=True)


def _check(tree: Tree, sections: Sequence[CodeSection], entry: str) -> None:
    modules = {file.module for file in tree.modules()}
    for name in (*layout.SOURCE_MODULES, BOOT_MAIN, entry.partition(":")[0]):
        if name not in modules:
            raise BuildError(f"module {name} is missing", "build from a complete checkout")
    for file in tree:
        if file.path.startswith(layout.FOLDER) or file.path in ("__main__.py", "__main__.pyc"):
            raise BuildError(
                f"{file.package} has a file {file.path}, where the build puts its own", "leave that file out"
            )
        if file.module is not None and file.path != layout.path_of(file.module, file.is_package):
            raise BuildError(f"{file.path} is not where module {file.module} belongs", "mend the tree")
    if not sections or len(sections) > layout.SLOTS:
        raise BuildError(f"code for {len(sections)} versions of Python", f"ask for 1 to {layout.SLOTS} (--python)")
    probe = b"probe"
    assert layout.check(probe).hex() == "9c2dc85974a0a10d", "this Python's source_hash is not SipHash-1-3"


def _add_section(archive: Zip, tree: Tree, section: CodeSection, entry: str) -> list[int | bytes]:
    """Adds one; gives its slot in the header."""
    packages = {file.module for file in tree.modules() if file.is_package}
    ours = next(file.package for file in tree.modules() if file.module == BOOT_MAIN)
    bundled = {file.module for file in tree.modules() if file.package != ours}
    codes = dict(section.codes)
    blobs = bytearray()
    modules: dict[str, layout.ModuleEntry] = {}
    for name, code in section.codes:
        # a start runs our modules, and of the others at most the progress bar's, when zlib is there anyway
        blob = bytes([layout.PACKED]) + deflated(code) if name in bundled else code
        modules[name] = (len(blobs), len(blob), layout.check(blob), name in packages)
        blobs += blob
    index = layout.pack((entry, _namespaces(tree), modules))
    boot = [codes[name] for name in layout.BOOT_MODULES]
    start = b"".join(boot) + index
    offset = archive.add(f"{layout.FOLDER}code-{section.interpreter.version}", start + blobs, store=True)[0]
    version = section.interpreter.version.encode()
    return [offset, *map(len, boot), len(index), layout.check(start), version]


def _add_what_python_reads(archive: Zip, tree: Tree, section: CodeSection) -> tuple[bytes, bytes]:
    """Adds what runs before the Finder does, first of all members; the bytes of `main` and of `sources`.

    Of `__main__`, bytecode that no time stamp can make stale, and the text for any other version: stored, since zlib
    would cost a start more than the disk two kilobytes.
    """
    texts = {file.module: file for file in tree.modules()}
    text, code = texts[BOOT_MAIN].data, dict(section.codes)[BOOT_MAIN]
    magic = section.interpreter.magic
    unchecked_hash = (1).to_bytes(4, "little")  # PEP 552
    pyc = magic + unchecked_hash + source_hash(int.from_bytes(magic, "little"), text) + code
    archive.add("__main__.pyc", pyc, store=True)
    archive.add("__main__.py", text, store=True)
    size = len(archive.data)
    if layout.HEADER_SIZE + size > layout.START_SIZE:
        raise BuildError(
            f"{BOOT_MAIN} is too large: {size:,} bytes with its bytecode", "make it smaller, or raise START_SIZE"
        )
    for name in layout.SOURCE_MODULES:
        archive.add(texts[name].path, texts[name].data)
    return archive.data[:size], archive.data[size:]


def _file_table(
    tree: Tree, archive: Zip, entry: str, originals: dict[str, layout.FileEntry | None]
) -> layout.FileTable:
    modules = {file.module or "": file.is_package for file in tree.modules()}
    return entry, _namespaces(tree), modules, dict(archive.entries), originals


def _check_word(data: bytes) -> int:
    return int.from_bytes(layout.check(data), "little")


def _add_originals(archive: Zip, tree: Tree, texts: dict[str, bytes]) -> dict[str, layout.FileEntry]:
    """All in one member; each compressed with the minified text, which it mostly repeats, as the dictionary."""
    packed = bytearray()
    entries: dict[str, layout.FileEntry] = {}
    for file in tree.modules():
        text = texts.get(file.path)
        if text is not None:
            stream = deflated(text, file.data)
            entries[file.path] = (len(packed), len(stream), len(text), zlib.crc32(text), layout.DEFLATED)
            packed += stream
    if not packed:
        return {}
    start = archive.add(layout.ORIGINALS, bytes(packed), store=True)[0]
    return {path: (start + entry[0], *entry[1:]) for path, entry in entries.items()}


def _namespaces(tree: Tree) -> tuple[str, ...]:
    """Top-level folders without `__init__.py` that can be imported: those of data alone too, for their resources."""
    folders = {file.path.partition("/")[0] for file in tree if "/" in file.path}
    names = {folder for folder in folders if folder.isidentifier() and not keyword.iskeyword(folder)}
    return tuple(sorted(names - {file.module for file in tree.modules()}))
