"""A snapshot on a shared file system is copied to the node once, and read from there by all processes of the node.

The copy's name says its content: the check of the header, which has the check of the index, which has one of each
module. Which process copies is settled by a lock that ends with the process; the others wait a moment, then read the
shared file themselves, as all do where no folder of the node is fit. Only folders of this user that nobody else can
write are used, and no link is followed.
"""

import os
import time

from trainer_boot import variables
from trainer_boot.file_lock import Lock
from trainer_boot.snapshot_format import HEADER_SIZE, Aside, open_snapshot
from trainer_boot.snapshot_place import (
    PREFIX,
    STALE_SECONDS,
    SUFFIX,
    last_use,
    own_folder,
    private_in,
    remove,
    temporary_name,
)

VARIABLE = "TRAINER_NODE_DIR"
MODES = ("auto", "on", "off")
# what /proc/self/mountinfo calls them; all that begin with "fuse." too
SHARED = (
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs", "9p", "virtiofs", "panfs", "wekafs"),
    *("glusterfs", "orangefs", "pvfs2", "ocfs2", "gfs2"),
)
WAIT_SECONDS = 2.0
ASK_SECONDS = 0.01
PIECE = 1 << 20
# together, of one user on one node
MOST_BYTES = 256 << 20
LEFT_FREE = 64 << 20


class Unfit(Exception):
    """Why the shared file is read itself."""


def nearer(path: str, mode: str = "auto") -> tuple[str, str]:
    """The path to open in place of `path`, and a word about it: "" where there is nothing to say. Raises nothing.

    `mode`: auto (if it lies on a shared file system), on, off.
    """
    if mode == "off" or (mode == "auto" and not is_shared(path)):
        return path, ""
    try:
        return _copy_of(path), "from a copy on this node"
    except (Unfit, OSError, Aside) as error:
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        return path, f"no copy on this node: {why}"


def is_shared(path: str) -> bool:
    """Whether the file lies on a file system that other machines have too, as far as its kind says."""
    try:
        device = os.stat(path).st_dev
        descriptor = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        parts = []
        while part := os.read(descriptor, PIECE):
            parts.append(part)
    finally:
        os.close(descriptor)
    return kind_of(f"{os.major(device)}:{os.minor(device)}", b"".join(parts).decode(errors="replace")) in SHARED


def kind_of(device: str, mounts: str) -> str:
    """The kind of the file system of that device (major:minor); "" where it isn't told. All of FUSE's are "nfs"."""
    for line in mounts.splitlines():
        words = line.split(" ")
        if len(words) > 6 and words[2] == device and "-" in words:
            kind = words[words.index("-") + 1]
            return "nfs" if kind.startswith("fuse.") or kind == "fuse" else kind
    return ""


def folders() -> list[str]:
    """In the order in which they are tried: what the variable says, and it alone; else one of the user's own in memory,
    in $TMPDIR, in /tmp."""
    given = variables.value(VARIABLE)
    if given:
        return [os.path.abspath(given)]
    temporary = os.environ.get("TMPDIR", "")
    bases = ["/dev/shm", *([temporary] if os.path.isabs(temporary) else []), "/tmp"]
    return [private_in(base) for base in dict.fromkeys(bases) if os.path.isdir(base)]


def _copy_of(path: str) -> str:
    """The path of a whole copy."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        name = _name(path, os.pread(descriptor, HEADER_SIZE, 0))
        size = os.fstat(descriptor).st_size
        problem: Exception = Unfit("no folder")
        for folder in folders():
            copy = f"{folder}/{name}"
            try:
                own_folder(folder, linked=bool(variables.value(VARIABLE)))
                if os.path.lexists(copy) or _published(descriptor, size, copy):
                    _require_whole(copy)
                    return copy
                problem = Unfit("another process was too slow to make it")
            except (OSError, Unfit) as error:
                problem = error
        raise problem
    finally:
        os.close(descriptor)


def _name(path: str, head: bytes) -> str:
    from trainer_boot.layout import check

    if len(head) < HEADER_SIZE:
        raise Unfit("it is damaged")
    identity = os.path.basename(path).removeprefix(PREFIX).removesuffix(SUFFIX)
    return f"{PREFIX}{identity}-{check(head).hex()}{SUFFIX}"


def _published(source: int, size: int, copy: str) -> bool:
    """Makes the copy, or waits for the process that does; whether it is there. OSError, Unfit."""
    lock = Lock(copy)
    end = time.monotonic() + WAIT_SECONDS
    while not lock.take():
        if os.path.lexists(copy):
            return True
        if time.monotonic() > end:
            return False
        time.sleep(ASK_SECONDS)
    try:
        if not os.path.lexists(copy):
            _make_room(os.path.dirname(copy), size)
            _copy(source, size, copy)
        return True
    finally:
        lock.release()


def _copy(source: int, size: int, copy: str) -> None:
    """OSError; nothing is left then."""
    from trainer_boot import parallel

    temporary = temporary_name(copy)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    target = os.open(temporary, flags, 0o600)
    try:
        try:
            os.posix_fallocate(target, 0, max(size, 1))  # a full disk is told now
            parallel.each(lambda at: _piece(source, target, at), range(0, size, PIECE))
            os.ftruncate(target, size)
        finally:
            os.close(target)
        os.rename(temporary, copy)
    except BaseException:
        remove(temporary)
        raise


def _piece(source: int, target: int, at: int) -> None:
    data = os.pread(source, PIECE, at)
    while data:
        written = os.pwrite(target, data, at)
        data, at = data[written:], at + written


def _require_whole(copy: str) -> None:
    """Aside, and nothing is left of it, where it is not a snapshot that may be served."""
    try:
        open_snapshot(copy).close()
    except Aside:
        remove(copy)
        raise


def _make_room(folder: str, size: int) -> None:
    """Takes copies away until there is room for another one; the ones used last stay. Unfit where there is none."""
    copies, room = [], MOST_BYTES - size
    now = time.time()
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        if name.startswith(PREFIX) and name.endswith(SUFFIX):
            copies.append((last_use(path), path))
        elif name.startswith(PREFIX) and name.endswith(".new") and now - last_use(path) > STALE_SECONDS:
            remove(path)  # half a copy of a process that was killed
        elif name.startswith(PREFIX) and name.endswith(".lock"):
            Lock(path.removesuffix(".lock")).sweep()  # of one that was killed
    for _, path in sorted(copies, reverse=True):
        room -= _size(path)
        if room < 0:
            remove(path)
    status = os.statvfs(folder)
    if status.f_bavail * status.f_frsize < size + LEFT_FREE:
        raise Unfit(f"{folder} has no room")


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
