"""Files of a checkpoint: found without following links, opened without waiting, never larger than they may be."""

import contextlib
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from trainer.safe_open import Unfit, kind, open_regular

# the client of a network file system keeps a removed file that is still open under such a name
_KEPT_BY_NFS = ".nfs"


class Damaged(Exception):
    """A checkpoint that is not what was written: `file` inside the folder `path`, and `why`."""

    def __init__(self, path: Path, file: str, why: str) -> None:
        super().__init__(f"{path / file} {why}")
        self.path = path
        self.file = file
        self.why = why


def regular_files(folder: Path) -> Iterator[str]:
    """Yield the names of all files below `folder`, relative to it and with `/`, in a fixed order.

    Raises `Damaged` for whatever is neither a regular file nor a directory, and for a directory with nothing in it.
    """
    yield from _below(folder, "")


def open_file(folder: Path, name: str) -> BufferedReader:
    """Open the regular file `name` of `folder` for reading.

    No part of `name` may be a link. A named pipe does not block. Raises `Damaged` if there is no such regular file.
    """
    try:
        with _parent(folder, name) as (parent, last):
            return open_regular(last, parent)
    except Unfit as problem:
        raise Damaged(folder, name, str(problem)) from problem


def _below(folder: Path, inside: str) -> Iterator[str]:
    try:
        with os.scandir(folder / inside) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise Damaged(folder, inside, f"cannot be read: {error.strerror}") from error
    if inside and not entries:
        raise Damaged(folder, inside, "is an empty directory")
    for entry in entries:
        name = f"{inside}/{entry.name}" if inside else entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _below(folder, name)
        elif entry.is_file(follow_symlinks=False):
            if not entry.name.startswith(_KEPT_BY_NFS):
                yield name
        else:
            raise Damaged(folder, name, f"is {kind(folder / name) or 'gone'}")


@contextlib.contextmanager
def _parent(folder: Path, name: str) -> Iterator[tuple[int, str]]:
    """Open the directory that the file `name` below `folder` lies in, and which only `folder` may reach by a link."""
    *parents, last = name.split("/")
    here = -1
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for parent in parents:
            inner = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = inner
    except FileNotFoundError:
        raise Unfit("is missing") from None
    except OSError as error:
        raise Unfit(f"cannot be read: {error.strerror}") from error
    else:
        yield here, last
    finally:
        if here >= 0:
            os.close(here)
