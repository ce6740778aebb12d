"""importlib.resources over the archive: files and folders in it, which have no path in the file system."""

from __future__ import annotations

import errno
import io
from fnmatch import fnmatchcase
from importlib.resources.abc import Traversable, TraversableResources
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from trainer_boot.finder import running

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

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return PurePosixPath(self.name).stem

    def glob(self, pattern: str) -> Iterator[BundlePath]:
        """What lies below and matches a pattern, as of `pathlib.Path`."""
        for path in self._below():
            if _matches(path._path[len(self._path) :].strip("/").split("/"), pattern.split("/")):
                yield path

    def rglob(self, pattern: str) -> Iterator[BundlePath]:
        """The same in every folder below."""
        return self.glob("**/" + pattern)

    def _below(self) -> Iterator[BundlePath]:
        for path in self.iterdir() if self.is_dir() else ():
            yield path
            yield from path._below()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (str(self),)

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
        """Opens it for reading, as `pathlib.Path.open` does: binary if `mode` has a "b". ValueError for other modes.

        More arguments are those of a text file: encoding, errors, newline. There is nothing to buffer.
        """
        if sorted(mode) not in (["r"], ["r", "t"], ["b", "r"]):
            raise ValueError(f"mode {mode!r}: a file of an archive can only be read")
        options.pop("buffering", None)
        if "b" in mode and (arguments or any(value is not None for value in options.values())):
            raise ValueError("a binary file has no encoding, errors or newline")
        stream = io.BytesIO(self.read_bytes())
        return stream if "b" in mode else io.TextIOWrapper(stream, *arguments, **options)


def _unpickled(path: str) -> BundlePath:
    """In another process of the same file: its archive. FileNotFoundError in one of another file."""
    finder = running()
    if finder is None or not (path + "/").startswith(finder.archive.prefix):
        raise FileNotFoundError(errno.ENOENT, "not in the archive of this process", path)
    return BundlePath(finder.archive, finder.archive.members.inside(path))


def _matches(parts: list[str], patterns: list[str]) -> bool:
    if not patterns or not parts:
        return not parts and all(pattern == "**" for pattern in patterns)
    if patterns[0] == "**":
        return _matches(parts, patterns[1:]) or _matches(parts[1:], patterns)
    return fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])


class Merged(Traversable):
    """A folder of several places: what lies in any of them, and of one name the first."""

    def __init__(self, places: list[Traversable]) -> None:
        self._places = places

    @property
    def name(self) -> str:
        """Its last part, the same in all places."""
        return self._places[0].name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._places!r})"

    def __str__(self) -> str:
        return str(self._places[0])

    def iterdir(self) -> Iterator[Traversable]:
        """What lies in it, by name."""
        names = {each.name for place in self._places for each in place.iterdir()}
        return (self.joinpath(name) for name in sorted(names))

    def is_dir(self) -> bool:
        """Yes."""
        return True

    def is_file(self) -> bool:
        """No."""
        return False

    def joinpath(self, *descendants: Any) -> Traversable:
        """What lies below; it need not exist."""
        parts = [part for path in descendants for part in str(path).split("/") if part not in ("", ".")]
        if not parts:
            return self
        found = [place.joinpath(parts[0]) for place in self._places]
        folders = [each for each in found if each.is_dir()]
        first = next((each for each in found if each.is_file() or each.is_dir()), found[0])
        below: Traversable = Merged(folders) if len(folders) > 1 and first.is_dir() else first
        return below.joinpath(*parts[1:]) if parts[1:] else below

    def __truediv__(self, child: Any) -> Traversable:
        return self.joinpath(child)

    def read_bytes(self) -> bytes:
        """FileNotFoundError, as the standard one has it."""
        raise FileNotFoundError(errno.ENOENT, "a folder of several places", str(self))

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """FileNotFoundError."""
        return self.read_bytes().decode()

    def open(self, mode: str = "r", *arguments: Any, **options: Any) -> IO[Any]:
        """FileNotFoundError."""
        return io.BytesIO(self.read_bytes())


class Reader(TraversableResources):
    """Of the modules in one folder."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self._files = BundlePath(archive, folder)

    def files(self) -> BundlePath:
        """The folder."""
        return self._files


class PortionsReader(TraversableResources):
    """Of a package without `__init__.py`, by the folders that it is made of."""

    def __init__(self, archive: Archive, folders: list[str]) -> None:
        bundled = [folder.startswith(archive.prefix) for folder in folders]
        places: list[Traversable] = [
            BundlePath(archive, archive.members.inside(folder)) if inside else Path(folder)
            for folder, inside in zip(folders, bundled, strict=True)
        ]
        self._files = places[0] if len(places) == 1 else Merged(places)

    def files(self) -> Traversable:
        """The folder."""
        return self._files
