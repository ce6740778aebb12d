"""Where snapshots are kept: which folder, under which name, written by one process at a time, a few of them."""

import os
import time

from trainer_boot import trust, variables
from trainer_boot.file_lock import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "TRAINER_SNAPSHOT_DIR"
PREFIX, SUFFIX = "import-", ".snapshot"
KEPT = 4
STALE_SECONDS = 600.0  # of what a killed process has left half written
MOST_NAMES = 1000


def folders() -> list[str]:
    """In the order in which they are tried: what the variable says, and it alone; else the user's cache, else a folder
    of the user's own in /tmp."""
    given = variables.value(VARIABLE)
    if given:
        return [os.path.abspath(given)]
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    found = [cache + "/trainer-pyz"] if os.path.isabs(cache) else []
    return [*found, private_in("/tmp")]


def private_in(base: str) -> str:
    """The path of a folder of this user's own in one that all users share; it need not exist yet.

    Where another user has taken the usual name, it has a random ending, and is found again by its owner.
    """
    usual = f"{base}/trainer-pyz-{os.geteuid()}"
    if _may_be_ours(usual):
        return usual
    start, looked_at = os.path.basename(usual) + "-", 0
    try:
        with os.scandir(base) as entries:
            for entry in entries:
                if entry.name.startswith(start):
                    looked_at += 1
                    if _may_be_ours(entry.path) and entry.is_dir(follow_symlinks=False):
                        return entry.path
                    if looked_at == MOST_NAMES:
                        break
    except OSError:
        pass
    return f"{usual}-{os.urandom(8).hex()}"


def file_in(folder: str, identity: str) -> str:
    """The path of the snapshot of that identity."""
    return f"{folder}/{PREFIX}{identity}{SUFFIX}"


def find(identity: str, cache: str | None = None) -> tuple[str, str, bool]:
    """The path of the first that may be served, or else of the first that there may be; why those before it may not be
    served; whether any may. `cache`: this folder only."""
    reasons: list[str] = []
    possible: list[str] = []
    first = ""
    for folder in [cache] if cache else folders():
        path = file_in(folder, identity)
        first = first or path
        usual = f"/tmp/trainer-pyz-{os.geteuid()}"
        if folder.startswith(usual + "-"):
            reasons.append(f"{usual} belongs to another user or can be written by others: {folder} is used instead")
        try:
            trust.require_own(folder)
            if os.path.lexists(path):
                trust.judge(path, os.lstat(path), trust.owners())
                return path, "; ".join(reasons), True
        except trust.Untrusted as problem:
            reasons.append(str(problem))
            continue
        except OSError:  # there is none
            pass
        possible.append(path)
    return (possible or [first])[0], "; ".join(reasons), bool(possible)


def make_folder(cache: str | None = None) -> str:
    """The first folder that this user can write and others can't, made if need be. OSError where there is none."""
    problem = OSError("no folder for the snapshot")
    for folder in [cache] if cache else folders():
        try:
            own_folder(folder, linked=bool(variables.value(VARIABLE)))
        except OSError as error:
            problem = error
        else:
            return folder
    raise problem


def own_folder(folder: str, linked: bool) -> None:
    """Makes it if need be. OSError unless this user can write it, and others can neither write it nor put another one
    in its place. `linked`: it may be a link."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.stat(folder) if linked else os.lstat(folder)
    if status.st_mode & 0o170000 != 0o040000:
        raise NotADirectoryError(20, "is not a directory", folder)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(13, "belongs to another user or can be written by others", folder)
    try:
        trust.require_own(folder)
    except trust.Untrusted as problem:
        raise PermissionError(13, problem.why, problem.path) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(13, "can't be written", folder)


def _may_be_ours(path: str) -> bool:
    """Whether it is a folder that only this user can write, or nothing yet."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return ours and status.st_mode & 0o170000 == 0o040000


def temporary_name(path: str) -> str:
    """What a file is called until it is whole."""
    return f"{path}.{os.getpid()}.{time.monotonic_ns():x}.new"


def write(path: str, content: "Callable[[int], None]") -> None:
    """A new file, written by `content` to its descriptor and then renamed to `path`. OSError; nothing is left then."""
    temporary = temporary_name(path)
    # readable by all: a snapshot that root has made serves everybody
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o644)
    try:
        try:
            content(descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def prune(folder: str, keep: str) -> None:
    """Leaves `keep` and the KEPT - 1 other snapshots used last; takes away what killed processes left half written."""
    others = []
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        if not name.startswith(PREFIX) or path == keep:
            continue
        if name.endswith(SUFFIX):
            others.append((last_use(path), path))
        elif name.endswith(".new") and _is_stale(path):
            remove(path)
        elif name.endswith(".lock"):
            Lock(path.removesuffix(".lock")).sweep()
    for _, path in sorted(others, reverse=True)[KEPT - 1 :]:
        remove(path)


def last_use(path: str) -> float:
    """When it was read or written; 0 where it is gone."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0.0
    return max(status.st_atime, status.st_mtime)


def _is_stale(path: str) -> bool:
    try:
        return time.time() - os.lstat(path).st_mtime > STALE_SECONDS
    except OSError:
        return False


def remove(path: str) -> None:
    """Takes it away, if it is there."""
    try:  # noqa: SIM105  # contextlib is one more import
        os.unlink(path)
    except OSError:
        pass
