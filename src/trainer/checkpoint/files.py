"""Files of a checkpoint: found without following links, opened without waiting, never larger than they may be."""

import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

# the client of a network file system keeps a removed file that is still open under such a name
_KEPT_BY_NFS = ".nfs"
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Damaged(Exception):
    """A checkpoint that is not what was written: `file` inside the folder `path`, and `why`."""

    def __init__(self, path: Path, file: str, why: str) -> None:
        super().__init__(f"{path / file} {why}")
        self.path = path
        self.file = file
        self.why = why


class Identity(tuple[int, ...]):
    """Device, inode, size and times of a file: equal as long as nobody has replaced or written it."""

    @classmethod
    def of(cls, status: os.stat_result) -> "Identity":
        """Return the identity that `status` tells."""
        return cls((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))


def regular_files(folder: Path) -> Iterator[str]:
    """Yield the names of all files below `folder`, relative to it and with `/`, in a fixed order.

    Raises `Damaged` for whatever is neither a regular file nor a directory, and for a directory with nothing in it.
    """
    yield from _below(folder, "")


def open_regular(folder: Path, name: str) -> BufferedReader:
    """Open the regular file `name` of `folder` for reading.

    No part of `name` may be a link. A named pipe does not block. Raises `Damaged` if there is no such regular file.
    """
    try:
        descriptor = _open_below(folder, name)
    except FileNotFoundError:
        raise Damaged(folder, name, "is missing") from None
    except OSError as error:
        kind = _kind(folder / name)
        raise Damaged(folder, name, f"is {kind}" if kind else f"cannot be read: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Damaged(folder, name, f"is {_KINDS.get(stat.S_IFMT(status.st_mode), 'not a regular file')}")
    return open(descriptor, "rb")


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
            raise Damaged(folder, name, f"is {_kind(folder / name) or 'gone'}")


def _open_below(folder: Path, name: str) -> int:
    """Return a descriptor of a file below `folder`, which itself may be a link."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    *parents, last = name.split("/")
    try:
        for parent in parents:
            inner = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = inner
        return os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
    finally:
        os.close(here)


def _kind(path: Path) -> str:
    """Return what `path` is, if it is no regular file."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return ""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "not a regular file")
