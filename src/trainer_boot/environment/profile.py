"""Generations: which environment is current, and which ones were.

`profiles/default` is a link to `default-7`, and that one a link to an environment. A new generation gets the next
number; switching, forwards or back, is one rename of the first link.
"""

from __future__ import annotations

import os
import time

from trainer_boot.environment.refused import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.environment.store import Store

DEFAULT = "default"


class Generation:
    """One of them."""

    __slots__ = ("environment", "number", "since")

    def __init__(self, number: int, environment: str, since: float) -> None:
        self.number = number
        self.environment = environment
        self.since = since


class Profile:
    """The generations of a store."""

    def __init__(self, store: Store, name: str = DEFAULT) -> None:
        self._store = store
        self.link = os.path.join(store.profiles, name)

    def generations(self) -> list[Generation]:
        """All, oldest first."""
        start = os.path.basename(self.link) + "-"
        found = []
        try:
            entries = os.listdir(self._store.profiles)
        except OSError:
            return []
        for entry in entries:
            number = entry.removeprefix(start)
            if entry.startswith(start) and number.isdigit():
                path = os.path.join(self._store.profiles, entry)
                try:
                    since = os.lstat(path).st_mtime
                    found.append(Generation(int(number), os.path.basename(os.readlink(path)), since))
                except OSError:
                    continue
        return sorted(found, key=lambda generation: generation.number)

    def current(self) -> Generation | None:
        """The one that is in force."""
        try:
            number = os.readlink(self.link).rpartition("-")[2]
        except OSError:
            return None
        return next((each for each in self.generations() if str(each.number) == number), None)

    def add(self, environment: str) -> Generation:
        """Makes the environment current; a generation of its own, unless it is current already."""
        current = self.current()
        if current is not None and current.environment == environment:
            return current
        target = os.path.join("..", os.path.basename(self._store.environments), environment)
        number = max((each.number for each in self.generations()), default=0)
        while True:  # another process may take the same number
            number += 1
            try:
                os.symlink(target, f"{self.link}-{number}")
                break
            except FileExistsError:
                continue
            except OSError as error:
                raise self._unwritable(error) from None
        self.switch(number)
        return Generation(number, environment, time.time())

    def switch(self, number: int) -> Generation:
        """Makes a generation current. Refused where there is none of that number, or its environment is gone."""
        known = self.generations()
        wanted = next((each for each in known if each.number == number), None)
        if wanted is None:
            numbers = ", ".join(str(each.number) for each in known) or "none"
            raise Refused(f"there is no generation {number}", f"Use one of {numbers}; `env list` shows them.", 2)
        if self._store.get(wanted.environment) is None:
            raise Refused(
                f"the environment of generation {number}, {wanted.environment}, is gone",
                "Create it again with `env create`.",
            )
        temporary = f"{self.link}.{os.getpid()}.{time.monotonic_ns():x}"
        try:
            os.symlink(f"{os.path.basename(self.link)}-{number}", temporary)
            os.rename(temporary, self.link)
        except OSError as error:
            raise self._unwritable(error) from None
        return wanted

    def rollback(self) -> Generation:
        """Makes the generation before the current one current. Refused where there is none."""
        current = self.current()
        if current is None:
            raise Refused("there is no current generation to go back from", "Run `env create` or `env use NAME`.", 1)
        before = [each for each in self.generations() if each.number < current.number]
        if not before:
            raise Refused(f"generation {current.number} is the oldest one", "`env list` shows all generations.", 1)
        return self.switch(before[-1].number)

    def drop(self, generation: Generation) -> None:
        """Forgets one; its environment stays."""
        try:
            os.unlink(f"{self.link}-{generation.number}")
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> Refused:
        from trainer_boot.environment.store import unwritable

        return unwritable(self._store.profiles, error)
