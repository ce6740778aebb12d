"""Who could have put code there: owner and mode of what lies on the way to a file, and of the file.

Trusted are this user, root, the owner of `/` (who can do everything as it is; in a container without root's number that
is how root looks), and owners that are named. Nobody else may be able to write. A folder on the way may be writable by
all if it has the sticky bit, as /tmp has: there only the owner of an entry can replace it, and the owner of the next
entry is looked at too. Links are followed, and their owners and the way to their targets looked at likewise. Write
permission of a group counts as nobody else's where the group is the owner's private one.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

FOLDER, LINK, KIND, STICKY = 0o040000, 0o120000, 0o170000, 0o1000
GROUP_WRITES, OTHERS_WRITE = 0o020, 0o002
MOST_LINKS = 40


class Untrusted(Exception):
    """`path`: the folder or file that somebody else could write or owns; `why`: "belongs to another user (bob)"; `fix`:
    the command that would change that, or ""."""

    def __init__(self, path: str, why: str, fix: str = "", owner: str = "") -> None:
        super().__init__(f"{path} {why}")
        self.path = path
        self.why = why
        self.fix = fix
        self.owner = owner


def owners(more: "Collection[int]" = ()) -> "frozenset[int]":
    """The user numbers that are trusted."""
    return frozenset((os.geteuid(), 0, os.lstat("/").st_uid, *more))


def way_to(path: str, trusted: "frozenset[int] | None" = None) -> str:
    """Looks at everything on the way from `/` to the path, and at its own owner; its real path, as far as it exists.
    Untrusted; OSError for a way that leads nowhere."""
    trusted = owners() if trusted is None else trusted
    left = os.path.abspath(path).split("/")[::-1]
    place, links = "/", 0
    while left:
        name = left.pop()
        if name == "..":
            place = os.path.dirname(place)
        if name in ("", ".", ".."):
            continue
        _require_folder_on_the_way(place, trusted)
        here = f"{place.rstrip('/')}/{name}"
        try:
            status = os.lstat(here)
        except FileNotFoundError:
            return "/".join([here, *reversed(left)])
        _require_owner(here, status, trusted)
        if status.st_mode & KIND == LINK:
            links += 1
            if links > MOST_LINKS:
                raise OSError(40, "too many links", path)
            target = os.readlink(here)
            place = "/" if target.startswith("/") else place
            left += target.split("/")[::-1]
            continue
        place = here
    return place


def require_own(path: str, trusted: "frozenset[int] | None" = None) -> str:
    """The same, and nobody else can write what lies there; its real path. Untrusted, OSError."""
    trusted = owners() if trusted is None else trusted
    place = way_to(path, trusted)
    judge(place, os.lstat(place), trusted)
    return place


def judge(path: str, status: os.stat_result, trusted: "frozenset[int]") -> None:
    """Untrusted unless a trusted user owns it and nobody else can write it. Of a link only the owner counts."""
    _require_owner(path, status, trusted)
    if status.st_mode & KIND != LINK and _others_write(status):
        raise Untrusted(path, f"can be written by others (mode {status.st_mode & 0o7777:o})", f"chmod go-w {path}")


def judge_if_there(path: str, trusted: "frozenset[int]") -> None:
    """`judge` for a path that need not exist."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    judge(path, status, trusted)


def inside(folder: str, depth: int, trusted: "frozenset[int]", known: "Collection[str]" = ()) -> "Iterator[Untrusted]":
    """What is wrong with the entries of a folder, `depth` levels deep (below 1: of all). Links are followed to where
    they lead, each target once, except to the paths in `known`."""
    seen = set(known)
    waiting = [(folder, depth)]
    while waiting:
        place, levels = waiting.pop()
        try:
            entries = list(os.scandir(place))
        except OSError as error:
            yield Untrusted(place, f"can't be read ({error.strerror})")
            continue
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
                link = os.readlink(entry.path) if status.st_mode & KIND == LINK else ""
            except FileNotFoundError:  # removed meanwhile
                continue
            target = os.path.join(place, link) if link else None
            target = None if target in seen or os.path.dirname(target or "") == place else target
            if target is not None or status.st_uid not in trusted or status.st_mode & 0o022:
                seen.add(target or "")
                yield from _problems(entry.path, status, target, trusted)
            if status.st_mode & KIND == FOLDER and levels != 1:
                waiting.append((entry.path, levels - 1))


def _problems(
    path: str, status: os.stat_result, target: str | None, trusted: "frozenset[int]"
) -> "Iterator[Untrusted]":
    try:
        judge(path, status, trusted)
        if target is not None:
            place = way_to(target, trusted)
            judge_if_there(place, trusted)
    except Untrusted as problem:
        yield problem
    except OSError:
        return  # it leads nowhere


def _require_folder_on_the_way(path: str, trusted: "frozenset[int]") -> None:
    status = os.lstat(path)
    if status.st_mode & KIND != FOLDER:
        raise NotADirectoryError(20, "Not a directory", path)
    _require_owner(path, status, trusted)
    if _others_write(status) and not status.st_mode & STICKY:
        mode = f"{status.st_mode & 0o7777:o}"
        raise Untrusted(path, f"can be written by others (mode {mode}, no sticky bit)", f"chmod go-w {path}")


def _require_owner(path: str, status: os.stat_result, trusted: "frozenset[int]") -> None:
    if status.st_uid not in trusted:
        name = user_name(status.st_uid)
        raise Untrusted(path, f"belongs to another user ({name})", owner=name)


def _others_write(status: os.stat_result) -> bool:
    if status.st_mode & OTHERS_WRITE:
        return True
    return bool(status.st_mode & GROUP_WRITES) and not _is_private(status.st_gid, status.st_uid)


def _is_private(group: int, user: int) -> bool:
    """Whether the group is the one that many systems make for each user, of that name and with nobody else in it."""
    if group == 0:
        return False
    import grp

    try:
        found = grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == user_name(user) and not set(found.gr_mem) - {found.gr_name}


def user_name(number: int) -> str:
    """The name of a user; the number where it has none."""
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
