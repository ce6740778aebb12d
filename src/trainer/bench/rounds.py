"""Contenders, run in turn, round after round."""

import statistics
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from trainer.bench.contenders import Bed, Contender, Place, Result
from trainer.bench.figures import Row, compared
from trainer.bench.processes import Failed

Value = TypeVar("Value")
Tell = Callable[[str], None]


class Differs(Exception):
    """A contender whose losses are not those of the first."""


def turns(names: list[str], rounds: int) -> list[tuple[int, str]]:
    """(round, contender) in order; round 0 warms up. Every other round goes backwards."""
    return [(number, name) for number in range(rounds + 1) for name in (names if number % 2 else names[::-1])]


def measure(bed: Bed, contenders: dict[str, Contender], rounds: int, tell: Tell) -> dict[str, Row]:
    """A row a contender: as figures.compared has it, with `cpu_s`, `losses`, `layers` and what the place has counted.

    One that fails is skipped with its error, but for the first, which all are compared with: Failed then. Differs
    where a loss is not the same, bit for bit.
    """
    skipped = {name: each.lacks for name, each in contenders.items() if each.lacks}
    base = next(name for name in contenders if name not in skipped)
    runs: dict[str, list[tuple[Result, dict[str, int]]]] = {name: [] for name in contenders}
    place, bed.place = bed.place, Place()  # snapshots are made where it is quick
    for name, each in contenders.items():
        if each.cache and name not in skipped:
            tell(f"{name}: making its snapshot")
            _try(name, base, skipped, partial(bed.make_snapshot, each))
    bed.place = place
    for number, name in turns(list(contenders), rounds):
        if name in skipped:
            continue
        tell(f"{name}: {f'round {number} of {rounds}' if number else 'warming up'}")
        result = _try(name, base, skipped, partial(bed.run, contenders[name]))
        if result is not None and number:
            runs[name].append((result, bed.facts))
    return _rows(runs, skipped, base)


def _try(name: str, base: str, skipped: dict[str, str], action: Callable[[], Value]) -> Value | None:
    try:
        return action()
    except Failed as error:
        if name == base:
            raise
        lines = str(error).strip().splitlines()
        skipped[name] = next((line for line in reversed(lines) if "rror" in line), lines[0])[:200]
        return None


def _rows(runs: dict[str, list[tuple[Result, dict[str, int]]]], skipped: dict[str, str], base: str) -> dict[str, Row]:
    rows = compared({name: [result.seconds for result, _ in all_of] for name, all_of in runs.items()}, skipped)
    losses = runs[base][0][0].losses
    for name, row in rows.items():
        if name in skipped:
            continue
        results = [result for result, _ in runs[name]]
        different = next((result.losses for result in results if result.losses != losses), None)
        if different is not None:
            raise Differs(f"{name} has other losses: {different}, not {losses}")
        row["cpu_s"] = round(statistics.median(result.cpu for result in results), 2)
        row["losses"] = losses
        row["layers"] = results[-1].layers
        counted = [facts for _, facts in runs[name]]
        row |= {key: statistics.median_low([facts[key] for facts in counted]) for key in counted[0]}
        aside = [f"{note['layer']} {note['state']}" for note in row["layers"] if note["state"] != "off"]
        row["note"] = f"{row['cpu_s']:6.2f} s of processors" + (f"  [{', '.join(aside)}]" if aside else "")
    return rows
