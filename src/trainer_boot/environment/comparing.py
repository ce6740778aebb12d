"""The whole comparison of an environment with the lock: which variant it is, and every difference."""

from __future__ import annotations

import sys

from trainer_boot.environment import checking, contents, store, trusted
from trainer_boot.environment.installed import survey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_boot.environment.carried import Carried, Pin
    from trainer_boot.environment.hashing import Progress
    from trainer_boot.environment.problems import Problem


class Verdict:
    """`variant` and `extras` that were compared with, `problems` by name, `packages`: how many were looked for,
    `stored`: is it an environment of a store?"""

    def __init__(
        self, variant: str, extras: tuple[str, ...], problems: list[Problem], packages: int, stored: bool
    ) -> None:
        self.variant = variant
        self.extras = extras
        self.problems = problems
        self.packages = packages
        self.stored = stored

    @property
    def fits(self) -> bool:
        """No difference that counts."""
        return not any(problem.fatal for problem in self.problems)


def compare(
    carried: Carried,
    variant: str | None = None,
    extras: Sequence[str] | None = None,
    *,
    path: Iterable[str] | None = None,
    bundled: bool = True,
    full: Progress | None = None,
    sizes_only: bool = False,
) -> Verdict:
    """Compares what is on the path (None: sys.path). Refused where the lock is not for this Python or platform.

    `variant` and `extras` None: those that this environment was made with, or else the variant that comes nearest.
    `full`: also reads every file, and calls this on the way; `sizes_only`: looks at their sizes only.
    """
    seen = survey(path)
    made = store.read_manifest(sys.prefix) if path is None else None
    if made is not None and made.lock == carried.digest:
        variant = made.variant if variant is None else variant
        extras = made.extras if extras is None else extras
    chosen = tuple(extras or ())
    pairs = seen.pairs()
    tried: dict[str, tuple[list[Problem], list[dict[str, object]]]] = {}
    for each in carried.variants if variant is None else [variant]:
        wanted = [pin.requirement() for pin in _looked_for(carried.here(each, chosen), bundled)]
        tried[each] = (checking.check(wanted, pairs), wanted)
    best = min(tried, key=lambda name: (_weight(tried[name][0]), name))
    problems, wanted = tried[best]
    problems = problems + contents.look(wanted, seen)
    if full is not None:
        from trainer_boot.environment import hashing

        problems += hashing.compare(wanted, seen, full, sizes_only=sizes_only)
        if made is not None:
            problems += trusted.problems(sys.prefix)
    problems.sort(key=lambda problem: problem.name)
    return Verdict(best, chosen, problems, len(wanted), made is not None)


def _looked_for(pins: list[Pin], bundled: bool) -> list[Pin]:
    return [pin for pin in pins if not (bundled and pin.kind == "bundled")]


def _weight(problems: list[Problem]) -> tuple[int, int]:
    """How far from it: differences, then notes."""
    return sum(problem.fatal for problem in problems), len(problems)
