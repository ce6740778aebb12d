"""The files of the archive, and the text of its modules. Not needed to import modules whose code is in the archive."""

from __future__ import annotations

import errno
import marshal
import os
import posixpath
import zlib
from importlib.util import decode_source

from trainer_boot.finder import Archive, BundleError, BundleLoader
from trainer_boot.layout import DEFLATED, word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

    from trainer_boot.layout import FileEntry, FileTable, Index


class Members:
    """What is in the archive besides code, each read with its CRC checked."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        head = archive.head
        expected = word(head, "files_crc")
        table: FileTable = marshal.loads(
            archive.read(
                word(head, "files_offset"),
                word(head, "files_size"),
                lambda data: data if zlib.crc32(data) == expected else None,
            )
        )
        self.entry, self.namespaces, self.modules, self.files, self._originals = table
        self._folders: dict[str, dict[str, bool]] = {}

    def read(self, path: str) -> bytes:
        """The content of a file, by its path in the archive or one that starts with the archive's own path.

        FileNotFoundError if there is none, IsADirectoryError for a folder.
        """
        inner = self.inside(path)
        entry = self.files.get(inner)
        if entry is None:
            number = errno.EISDIR if inner in self.folders else errno.ENOENT
            raise OSError(number, os.strerror(number), self._archive.prefix + inner)
        return self._content(entry, b"")

    def has_original(self, path: str) -> bool:
        """Was the text at `path` changed by the minifier, and is its author's in the archive?"""
        return self._originals.get(path) is not None

    def original_bytes(self, path: str) -> bytes:
        """That text, as it was read."""
        entry = self._originals[path]
        assert entry is not None
        return self._content(entry, self.read(path))

    def original(self, path: str) -> str | None:
        """The text of the module at `path` as its author wrote it; None if the build left it out."""
        if self.has_original(path):
            return decode_source(self.original_bytes(path))
        return None if path in self._originals else decode_source(self.read(path))

    def inside(self, path: str) -> str:
        """Path in the archive, without `.` and `..`; "" for the archive itself."""
        if path.startswith(self._archive.prefix):
            path = path[len(self._archive.prefix) :]
        path = posixpath.normpath(path)
        return "" if path in (".", self._archive.path) else path

    @property
    def folders(self) -> dict[str, dict[str, bool]]:
        """Every folder -> the names in it -> is that a folder."""
        if not self._folders:
            folders: dict[str, dict[str, bool]] = {"": {}}
            for path in self.files:
                below = False
                while path:
                    path, _, name = path.rpartition("/")
                    folders.setdefault(path, {})[name] = below
                    below = True
            self._folders = folders
        return self._folders

    def _content(self, entry: FileEntry, known: bytes) -> bytes:
        """The bytes of an entry; `known` is what its compression built on."""
        offset, size, full_size, expected, method = entry

        def decode(data: bytes) -> bytes | None:
            if method == DEFLATED:
                try:
                    data = zlib.decompressobj(-zlib.MAX_WBITS, known).decompress(data, full_size or 1)
                except zlib.error:
                    return None
            return data if zlib.crc32(data) == expected and len(data) == full_size else None

        return self._archive.read(offset, size, decode)


class SourceLoader(BundleLoader):
    """For a version of Python whose code is not in the archive: compiles the text that is there, at every start."""

    has_code = False

    def get_code(self, fullname: str) -> CodeType:
        """The code object, compiled now."""
        path = self._path(fullname)
        code: CodeType = compile(self.archive.members.read(path), self.archive.prefix + path, "exec", dont_inherit=True)
        return code

    def get_source(self, fullname: str) -> str | None:
        """The text that was compiled."""
        try:
            return decode_source(self.archive.members.read(self._path(fullname)))
        except BundleError as error:
            raise ImportError(str(error), name=fullname) from error


def names_only(archive: Archive) -> Index:
    """An index for the SourceLoader."""
    members = archive.members
    modules = {name: (0, 0, b"", is_package) for name, is_package in members.modules.items()}
    return members.entry, members.namespaces, modules
