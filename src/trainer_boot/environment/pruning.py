"""Throws environments away that nobody needs: not in a generation that is kept, not in use."""

from __future__ import annotations

import fcntl
import os
import shutil

from trainer_boot.environment import creating, locks
from trainer_boot.environment.profile import Profile
from trainer_boot.environment.refused import Refused
from trainer_boot.environment.store import MANIFEST, Store, unwritable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_boot.environment.store import Stored


class Outcome:
    """`dropped`: numbers of generations; `removed`: (name, bytes freed); `kept`: (name, why); `elsewhere`: bytes that
    have another name, as in an installer's cache, and stay."""

    def __init__(self) -> None:
        self.dropped: list[int] = []
        self.removed: list[tuple[str, int]] = []
        self.kept: list[tuple[str, str]] = []
        self.elsewhere = 0


def prune(store: Store, generations: int, keep: Iterable[str] = (), dry: bool = False) -> Outcome:
    """Keeps the current generation, the `generations` - 1 before it, later ones, `keep` and what is in use. `dry`: only
    tells. Refused where the store can't be written."""
    outcome = Outcome()
    if not dry:
        store.make()
    profile = Profile(store)
    current = profile.current()
    wanted = dict.fromkeys(keep, "asked for")
    before = 0
    for each in reversed(profile.generations()):
        if current is None or each.number >= current.number or (before := before + 1) < generations:
            told = f"generation {each.number}" + (", current" if current and each.number == current.number else "")
            wanted.setdefault(each.environment, told)
            continue
        outcome.dropped.append(each.number)
        if not dry:
            profile.drop(each)
    mapped = _mapped_files()
    for stored in store.all():
        why = wanted.get(stored.name) or _why_in_use(stored, mapped)
        if why:
            outcome.kept.append((stored.name, why))
            continue
        freed = _frees(stored.path)
        if dry or _remove(store, stored):
            outcome.removed.append((stored.name, freed))
            outcome.elsewhere += max(0, stored.manifest.size - freed)
        else:
            outcome.kept.append((stored.name, "in use"))
    if not dry:
        _sweep_all(store)
    return outcome


def _why_in_use(stored: Stored, mapped: set[str]) -> str:
    if any(path.startswith(stored.path + "/") for path in mapped):
        return "in use"
    with open(os.path.join(stored.path, MANIFEST), "rb") as file:
        return "" if locks.take(file.fileno(), fcntl.LOCK_SH) and _takes_all(file.fileno()) else "in use"


def _takes_all(descriptor: int) -> bool:
    """Whether nobody else holds it."""
    return locks.take(descriptor, fcntl.LOCK_EX)


def _remove(store: Store, stored: Stored) -> bool:
    """Under the lock of its name, and of its use: nobody makes it or begins to use it meanwhile."""
    try:
        with locks.Lock(os.path.join(store.locks, stored.name), lambda who: None):
            descriptor = os.open(os.path.join(stored.path, MANIFEST), os.O_RDWR | os.O_CLOEXEC)
            try:
                if not locks.take(descriptor, fcntl.LOCK_EX):
                    return False
                creating.discard(store, stored.name)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise unwritable(store.place, error) from None
    return True


def _sweep_all(store: Store) -> None:
    """What killed processes have left; not what is being made."""
    for entry in os.listdir(store.environments):
        if not entry.startswith((creating.DRAFT, creating.TRASH)):
            continue
        name = entry.removeprefix(creating.DRAFT).removeprefix(creating.TRASH).rsplit(".", 2)[0]
        try:
            descriptor = locks.open_file(os.path.join(store.locks, name))
        except OSError:
            continue
        try:
            if locks.take(descriptor, fcntl.LOCK_EX):
                shutil.rmtree(os.path.join(store.environments, entry), ignore_errors=True)
        finally:
            os.close(descriptor)


def _mapped_files() -> set[str]:
    """Files of running processes, as far as this user may see them: who started an environment's Python by hand holds
    no lock of ours."""
    found: set[str] = set()
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/maps", encoding="utf-8", errors="surrogateescape") as file:
                found.update(line.split(None, 5)[-1].rstrip("\n") for line in file if "/" in line)
            with open(f"/proc/{number}/cmdline", encoding="utf-8", errors="surrogateescape") as file:
                found.add(file.read().partition("\0")[0])
        except OSError:
            continue
    return found


def _frees(folder: str) -> int:
    """Bytes that go with it: not those of files that have another name elsewhere, as in an installer's cache."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            status = os.lstat(os.path.join(place, name))
            total += status.st_blocks * 512 if status.st_nlink == 1 else 0
    return total


def find(store: Store, text: str) -> Stored:
    """The environment whose name begins so. Refused (status 2) where there is none, or several."""
    found = [name for name in store.names() if name == text] or [
        name for name in store.names() if name.startswith(text)
    ]
    if len(found) != 1:
        what = f"{len(found)} environments begin with {text!r}" if found else f"there is no environment {text!r}"
        raise Refused(f"{what} in {store.place}", "`env list` shows all environments.", 2)
    stored = store.get(found[0])
    if stored is None:
        raise Refused(
            f"{store.path_of(found[0])} is an incomplete environment", "Create it again with `env create`.", 1
        )
    return stored
