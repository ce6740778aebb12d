"""A lock between processes that ends with its owner, however that ends: nothing has to be broken after some time.

A record lock of the kernel (`fcntl`), which network file systems carry over to the server. It belongs to the process,
so children that are forked while it is held do not hold it. Where a file system has no locks all may go on at once:
whoever uses this writes a file of its own and renames it, and the later one stays.
"""

import errno
import os

NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
HELD = (errno.EAGAIN, errno.EACCES)
TRIES = 8
_held: dict[str, int] = {}  # path -> process: within one process the kernel's lock excludes nobody


class Lock:
    """On a file beside `path`, in a folder that nobody else can write. The file is there only while it is held, or
    after its owner was killed."""

    def __init__(self, path: str) -> None:
        self.path = path + ".lock"
        self._descriptor = -1

    def take(self) -> bool:
        """Never waits: False where another process, or this one, has it. OSError where its file can't be made."""
        import fcntl

        if _held.get(self.path) == os.getpid():
            return False
        for _ in range(TRIES):
            descriptor = self._open()
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    os.close(descriptor)
                    if error.errno in HELD:
                        return False
                    raise
            # whoever releases it removes the file: one that was waiting may have locked what nobody finds any more
            if _is_at(self.path, descriptor):
                self._descriptor = descriptor
                _held[self.path] = os.getpid()
                return True
            os.close(descriptor)
        return False

    def release(self) -> None:
        """The next one may have it."""
        if self._descriptor < 0:
            return
        if _is_at(self.path, self._descriptor):
            _unlink(self.path)
        os.close(self._descriptor)
        self._descriptor = -1
        _held.pop(self.path, None)

    def sweep(self) -> None:
        """Removes its file, unless somebody has it."""
        if os.path.lexists(self.path) and self.take():
            self.release()

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            return os.open(self.path, flags, 0o600)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EACCES, errno.ENXIO):
                raise
        _unlink(self.path)  # a link, or a file of another user: in a folder of our own nobody needs it
        return os.open(self.path, flags, 0o600)


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except OSError:
        return False


def _unlink(path: str) -> None:
    try:  # noqa: SIM105  # contextlib is one more import
        os.unlink(path)
    except OSError:
        pass
