"""What `trainer env` does with a store, for one file and its lock."""

from __future__ import annotations

import os

from trainer_boot.environment import creating, packing, pruning, wheels
from trainer_boot.environment.carried import prefix
from trainer_boot.environment.profile import Profile
from trainer_boot.environment.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_boot.environment.carried import Carried
    from trainer_boot.environment.profile import Generation
    from trainer_boot.environment.pruning import Outcome
    from trainer_boot.environment.refused import Refused
    from trainer_boot.environment.running import Say
    from trainer_boot.environment.store import Stored


class Keeper:
    """Of the store at `place` (None: the usual one). Its methods refuse with `Refused`."""

    def __init__(self, carried: Carried, place: str | None = None) -> None:
        self.carried = carried
        self.store = Store(place)
        self.profile = Profile(self.store)

    def create(
        self,
        say: Say,
        variant: str = "",
        extras: Sequence[str] = (),
        wheelhouse: str | None = None,
        repair: bool = False,
    ) -> tuple[Stored, bool]:
        """The environment of this lock, and whether it was made now. `wheelhouse`: a folder made by `pack`."""
        order = creating.Order(self.carried, variant, extras)
        if wheelhouse is not None:
            wheelhouse = os.path.abspath(wheelhouse)
            packing.open_pack(wheelhouse, order.chosen)
        return creating.create(order, self.store, say, wheelhouse=wheelhouse, repair=repair)

    def pack(
        self,
        folder: str,
        say: Say,
        variant: str = "",
        extras: Sequence[str] = (),
        version: tuple[int, int] | None = None,
        machine: str | None = None,
    ) -> dict[str, object]:
        """Fills a folder with the wheels, for this interpreter or another one; its manifest."""
        return packing.pack(self.carried, folder, say, variant, extras, wheels.Target(version, machine))

    def sorted_out(self) -> tuple[list[Stored], list[Refused]]:
        """The environments of the store by name: those that may be entered, and why the others may not."""
        return self.store.sorted_out()

    def fits(self, stored: Stored) -> bool:
        """Whether it was made for this file's lock."""
        return stored.name.startswith(prefix(self.carried))

    def use(self, text: str) -> Generation:
        """A generation by its number, or an environment by its name or how that begins, becomes current."""
        if text.isdigit() and int(text) in {each.number for each in self.profile.generations()}:
            return self.profile.switch(int(text))
        return self.profile.add(pruning.find(self.store, text).name)

    def prune(self, generations: int, dry: bool = False) -> Outcome:
        """Throws away what nobody needs; what fits this file stays."""
        mine = [name for name in self.store.names() if name.startswith(prefix(self.carried))]
        return pruning.prune(self.store, generations, mine, dry)
