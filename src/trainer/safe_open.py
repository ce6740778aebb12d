"""Opening files that somebody may have replaced: no links, no named pipes that block, no directories."""

import os
import stat
from io import BufferedReader

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Unfit(Exception):
    """There is no regular file to read; the text says why, to follow the file's name ("is a named pipe")."""


class Identity(tuple[int, ...]):
    """Inode, size and times of a file: equal as long as nobody has replaced or written it."""

    @classmethod
    def of(cls, status: os.stat_result) -> "Identity":
        """Return the identity that `status` tells. No device: a shared file system has another one on each host."""
        return cls((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))


def open_regular(path: str | os.PathLike[str], inside: int | None = None) -> BufferedReader:
    """Open a regular file for reading; `inside`: the descriptor of the folder that a relative path starts at.

    The last part of the path may not be a link. Raises `Unfit` if there is no such regular file.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, dir_fd=inside)
    except FileNotFoundError:
        raise Unfit("is missing") from None
    except OSError as error:
        seen = kind(path, inside)
        raise Unfit(f"is {seen}" if seen else f"cannot be read: {error.strerror}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise Unfit(f"is {_KINDS.get(stat.S_IFMT(mode), 'not a regular file')}")
    return open(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes. Raises `Unfit`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise Unfit(f"has {size:,} bytes, of at most {most:,}")
        try:
            return file.read(most)
        except OSError as error:
            raise Unfit(f"cannot be read: {error.strerror}") from error


def kind(path: str | os.PathLike[str], inside: int | None = None) -> str:
    """Return what the path is, if it is there and no regular file: "a directory"; else ""."""
    try:
        mode = os.stat(path, dir_fd=inside, follow_symlinks=False).st_mode
    except OSError:
        return ""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "not a regular file")
