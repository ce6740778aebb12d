"""Files that survive a power cut, and what is told when they cannot be written."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import UserError

# Some network and user-space file systems refuse to sync a folder; there the rename itself is all that can be had.
_UNSYNCABLE = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


def sync_folder(folder: Path) -> None:
    """Makes the names inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSYNCABLE:
            raise
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Makes `folder` and those above it, each name durable."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_folder(each.parent)


def remove(path: Path) -> None:
    """Removes a folder, as far as that is allowed; no error."""
    shutil.rmtree(path, ignore_errors=True)


def refused(error: OSError, folder: Path) -> UserError:
    """The error a user is shown when `folder` does not take a checkpoint."""
    reason = error.strerror or str(error)
    what = f"cannot save a checkpoint in {folder}: {reason}"
    if error.errno in _FULL:
        return UserError(what, "Free space there, or choose another folder with --run.folder.")
    if error.errno in _FORBIDDEN:
        return UserError(what, "Make that folder writable, or choose another one with --run.folder.")
    return UserError(what, "Check that file system, or choose another folder with --run.folder.")


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turns what the operating system refuses inside the block into a `UserError` that names `folder`.

    `torch.save` reports a full disk as a RuntimeError about a file position; the OSError is its context.
    """
    try:
        yield
    except OSError as error:
        raise refused(error, folder) from error
    except RuntimeError as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, OSError):
            raise refused(cause, folder) from error
        raise
