"""importlib.resources over the archive: files and folders in it, which have no path in the file system."""

from __future__ import annotations

import io
from importlib.resources.abc import Traversable, TraversableResources
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_boot.finder import Archive


class BundlePath(Traversable):
    """A file or folder of the archive; it need not exist."""

    def __init__(self, archive: Archive, path: str) -> None:
        self._archive = archive
        self._path = path

    @property
    def name(self) -> str:
        """Its last part."""
        return (self._path or self._archive.path).rpartition("/")[2]

    @property
    def parent(self) -> BundlePath:
        """The folder that it lies in."""
        return BundlePath(self._archive, self._path.rpartition("/")[0])

    def __str__(self) -> str:
        return self._archive.prefix + self._path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BundlePath) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash(str(self))

    def iterdir(self) -> Iterator[BundlePath]:
        """What lies in this folder, by name. NotADirectoryError or FileNotFoundError where it is none."""
        names = self._archive.members.folders.get(self._path)
        if names is None:
            raise (NotADirectoryError if self.is_file() else FileNotFoundError)(str(self))
        return (self.joinpath(name) for name in sorted(names))

    def is_dir(self) -> bool:
        """Is it a folder?"""
        return self._path in self._archive.members.folders

    def is_file(self) -> bool:
        """Is it a file?"""
        return self._path in self._archive.members.files

    def exists(self) -> bool:
        """Is there anything?"""
        return self.is_file() or self.is_dir()

    def joinpath(self, *descendants: Any) -> BundlePath:
        """What lies below, by names or relative paths."""
        parts = [self._path, *map(str, descendants)]
        return BundlePath(self._archive, self._archive.members.inside("/".join(part for part in parts if part)))

    def __truediv__(self, child: Any) -> BundlePath:
        return self.joinpath(child)

    def read_bytes(self) -> bytes:
        """The content. FileNotFoundError, IsADirectoryError."""
        return self._archive.members.read(self._path)

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """The content as text, every line end as a newline."""
        with self.open("r", encoding=encoding, errors=errors) as file:
            text: str = file.read()
        return text

    def open(self, mode: str = "r", *arguments: Any, **options: Any) -> IO[Any]:
        """Opens it for reading, as `pathlib.Path.open` does: binary if `mode` has a "b". ValueError for other modes."""
        if mode not in ("r", "rt", "rb"):
            raise ValueError(f"mode {mode!r}: a file of an archive can only be read")
        stream = io.BytesIO(self.read_bytes())
        return stream if mode == "rb" else io.TextIOWrapper(stream, *arguments, **options)


class Reader(TraversableResources):
    """Of the modules in one folder."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self._files = BundlePath(archive, folder)

    def files(self) -> BundlePath:
        """The folder."""
        return self._files
