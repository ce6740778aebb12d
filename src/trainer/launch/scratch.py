"""The private folder through which the ranks of one launch meet and report. It is gone with its last user.

Layout: `<base>/trainer-launch-<random>/users` is locked (shared) by the parent and by every rank;
`attempt-<n>/` holds the rendezvous file, the done marks and the failure files of one start of the ranks.
The locks are POSIX record locks: they belong to a process, so loader workers that are forked later do not hold them.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from trainer.errors import UserError

PREFIX = "trainer-launch-"
USERS = "users"
SETTINGS = "settings.json"
MINIMUM_FREE = 1 << 20
# memory first: TMPDIR may lie on a shared file system, where locks are slow or missing
BASES = ("/dev/shm", "TMPDIR", "/tmp", "/var/tmp")


def rendezvous_file(attempt: Path) -> Path:
    """Where the ranks of an attempt meet."""
    return attempt / "rendezvous"


def done_file(attempt: Path, rank: int) -> Path:
    """Exists once `rank` has nothing left to do."""
    return attempt / f"done-{rank}"


def failure_file(attempt: Path, rank: int) -> Path:
    """What `rank` had to say when it failed."""
    return attempt / f"failure-{rank}.json"


def settings(attempt: Path) -> str:
    """What the parent has written for its ranks."""
    return (attempt.parent / SETTINGS).read_text(encoding="utf-8")


class Scratch:
    """The launch folder, as its parent sees it: made on entry, removed on exit."""

    def __enter__(self) -> "Scratch":
        self.path, self._lock = _make()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # the status of the run matters more
            remove(self.path)
        os.close(self._lock)

    def write_settings(self, text: str) -> None:
        """Leaves a text for all ranks, in every attempt."""
        (self.path / SETTINGS).write_text(text, encoding="utf-8")

    def attempt(self, number: int) -> Path:
        """A fresh folder for one start of all ranks: nothing of an earlier one can be taken for its own."""
        folder = self.path / f"attempt-{number}"
        folder.mkdir(0o700)
        return folder


def join(attempt: Path) -> None:
    """Makes this process a user of the launch folder around `attempt`, until it ends. OSError when that is gone."""
    users = os.open(attempt.parent / USERS, os.O_RDWR)  # never closed: closing would unlock
    fcntl.lockf(users, fcntl.LOCK_SH)


def remove_if_last(attempt: Path) -> None:
    """Removes the launch folder around `attempt` unless another process uses it: for ranks that outlive the parent."""
    # first let go, then try: of ranks that leave at the same moment the last one to try succeeds
    with contextlib.suppress(FileNotFoundError):
        users = os.open(attempt.parent / USERS, os.O_RDWR)
        try:
            fcntl.lockf(users, fcntl.LOCK_UN)
            _remove_if_free(attempt.parent, users)
        finally:
            os.close(users)


def remove(folder: Path) -> None:
    """Removes a folder and what is in it; what another process removes meanwhile is no error."""
    with contextlib.suppress(FileNotFoundError):
        for inner in list(folder.iterdir()):
            if inner.is_dir() and not inner.is_symlink():
                remove(inner)
            else:
                inner.unlink(missing_ok=True)
        folder.rmdir()


def _make() -> tuple[Path, int]:
    """A new folder that only this user can read, and the descriptor that holds its lock."""
    bases = [os.environ.get("TMPDIR", "") if base == "TMPDIR" else base for base in BASES]
    for base in filter(None, bases):
        with contextlib.suppress(OSError):
            free = os.statvfs(base)
            if free.f_bavail * free.f_frsize < MINIMUM_FREE:
                continue
            _sweep(base)
            return _make_in(Path(base).absolute())
    raise UserError("no temporary folder has room for the ranks to meet", "Set TMPDIR to a writable local folder.")


def _make_in(base: Path) -> tuple[Path, int]:
    while True:
        path = base / (PREFIX + os.urandom(8).hex())
        path.mkdir(0o700)
        try:
            users = os.open(path / USERS, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.lockf(users, fcntl.LOCK_SH)
        except OSError:
            remove(path)
            raise
        if os.fstat(users).st_nlink:
            return path, users
        os.close(users)  # another launch swept it between its making and its lock


def _sweep(base: str) -> None:
    """Removes what launches left behind whose every process was killed."""
    for folder in list(Path(base).glob(f"{PREFIX}*")):
        # without its `users` file it is being made, or not ours
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.lstat().st_uid != os.geteuid():
                continue
            users = os.open(folder / USERS, os.O_RDWR | os.O_NOFOLLOW)
            try:
                _remove_if_free(folder, users)
            finally:
                os.close(users)


def _remove_if_free(folder: Path, users: int) -> None:
    with contextlib.suppress(BlockingIOError, PermissionError):  # EAGAIN or EACCES: somebody uses it
        fcntl.lockf(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(folder)
