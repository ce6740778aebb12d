"""Locks that end with the process that holds them.

The system's own (flock): whoever is killed, or loses its node, holds none; nothing is left to be broken. Where a file
system has none, two may make the same environment at once: the first one to rename it wins, the other throws its own
away.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_SECONDS = 0.1
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)


class Lock:
    """Of one name. A context; the file stays."""

    def __init__(self, path: str, waiting: Callable[[str], None]) -> None:
        self._path = path
        self._waiting = waiting
        self._descriptor = -1

    def __enter__(self) -> Lock:
        """Waits until no other process has it; `waiting` is told who has it, once. OSError."""
        self._descriptor = open_file(self._path)
        told = False
        while not take(self._descriptor, fcntl.LOCK_EX):
            if not told:
                self._waiting(os.pread(self._descriptor, 200, 0).decode(errors="replace").strip())
                told = True
            time.sleep(WAIT_SECONDS)
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        except OSError:
            pass  # no room: then nobody is told who has it
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)


def open_file(path: str) -> int:
    """A descriptor of the lock's file, which is made if need be. OSError, also for a link. Nobody else may open it: a
    lock that another user holds would last as long as that user likes."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def take(descriptor: int, kind: int) -> bool:
    """Takes a lock without waiting; False where another process has it. True where there are no locks at all."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return True
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def hold(path: str) -> int | None:
    """Marks the file as in use for as long as the descriptor stays open, here or in what we become by exec. None where
    it is gone, or was on its way."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        os.set_inheritable(descriptor, True)
        if take(descriptor, fcntl.LOCK_SH) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
        os.close(descriptor)
    except OSError:
        pass
    return None
