"""The value that travels through the build: every file of the archive, sorted by path.

`collect` makes it, `minify` returns another one with smaller `data` and the names of the passes that made it, `compile`
reads `original` + `passes`, `write` reads all of it.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class File:
    """One file of the archive."""

    path: str
    """Where it lies in the archive: posix, relative, no `.` or `..`."""
    data: bytes
    """What is shipped."""
    package: str
    """The distribution it comes from, by its normalized name ("trainer-pyz", "packaging")."""
    module: str | None = None
    """Dotted name if Python can import it ("packaging.tags"; "packaging" for its `__init__.py`), else None: data."""
    is_package: bool = False
    """True for an `__init__.py` that is a module."""
    original: bytes | None = None
    """The text of a module as it was read, before any pass; None for data."""
    passes: tuple[str, ...] = ()
    """Names of the minifier's passes that lead from `original` to `data`, in order; () where `data == original`."""


@dataclass(frozen=True, slots=True)
class Tree:
    """All files, sorted by path, no path twice; make one with `Tree.of`."""

    files: tuple[File, ...]

    @classmethod
    def of(cls, files: Iterable[File]) -> "Tree":
        """The tree of these files in any order. ValueError where two share a path or a name, or one leads out."""
        ordered = tuple(sorted(files, key=lambda file: file.path))
        modules: dict[str, str] = {}
        for before, file in zip((None, *ordered), ordered, strict=False):
            if before is not None and before.path == file.path:
                raise ValueError(f"{file.path} comes from both {before.package} and {file.package}")
            parts = file.path.split("/")
            if "" in parts or "." in parts or ".." in parts or "\\" in file.path or "\0" in file.path:
                raise ValueError(f"{file.path!r} of {file.package} is not a relative posix path")
            if file.module is not None:
                if file.original is None:
                    raise ValueError(f"module {file.path} has no original text")
                if file.module in modules:
                    raise ValueError(f"module {file.module} is both {modules[file.module]} and {file.path}")
                modules[file.module] = file.path
        return cls(ordered)

    def __iter__(self) -> Iterator[File]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def modules(self) -> tuple[File, ...]:
        """The files that Python can import, by path."""
        return tuple(file for file in self.files if file.module is not None)

    def map(self, change: Callable[[File], File]) -> "Tree":
        """The tree whose files are `change(file)`."""
        return Tree.of(change(file) for file in self.files)

    def digest(self) -> str:
        """SHA-256 (hex) over path, shipped bytes, original bytes and passes of every file."""
        total = hashlib.sha256()
        for file in self.files:
            for part in (
                file.path.encode(),
                file.package.encode(),
                (file.module or "").encode(),
                file.data,
                file.original or b"",
                ",".join(file.passes).encode(),
            ):
                total.update(len(part).to_bytes(8, "little"))
                total.update(part)
        return total.hexdigest()
