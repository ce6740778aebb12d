"""Figures of contenders that were run in turn: medians, quartiles, ratios to the first of them; their table."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]
"""`median`, `low`, `high` (quartiles), `ratio` (None for a skipped base); or `skipped`, a sentence."""


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile; of one value three times that."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def compared(taken: Mapping[str, Sequence[float]], skipped: Mapping[str, str], digits: int = 3) -> dict[str, Row]:
    """A row a contender, in the order of `taken`, whose values are those of the rounds.

    `ratio` is the median of the ratios of each round to the first contender that was not skipped, so that what changed
    on the machine between rounds changes both sides of each.
    """
    base = next((values for name, values in taken.items() if name not in skipped), None)
    rows: dict[str, Row] = {}
    for name, values in taken.items():
        if name in skipped:
            rows[name] = {"skipped": skipped[name]}
            continue
        assert base is not None
        low, middle, high = quartiles(values)
        rows[name] = {
            "median": round(middle, digits),
            "low": round(low, digits),
            "high": round(high, digits),
            "ratio": round(statistics.median(own / first for own, first in zip(values, base, strict=True)), 3),
        }
    return rows


def table(title: str, rows: Mapping[str, Row], unit: str = "s", digits: int = 3) -> list[str]:
    """Lines for people; what a row has under `note` is put behind it."""
    width = max(map(len, rows), default=0)
    base = next((name for name, row in rows.items() if "skipped" not in row), "nothing")
    lines = [title]
    for name, row in rows.items():
        if "skipped" in row:
            lines.append(f"  {name:<{width}}  skipped: {row['skipped']}")
            continue
        told = "".join(f"{row[key]:9.{digits}f}" for key in ("median", "low", "high"))
        note = f"  {row['note']}" if row.get("note") else ""
        lines.append(f"  {name:<{width}} {told}  {row['ratio']:7.3f}{note}")
    head = f"  {'':<{width}} {'median ' + unit:>9}{'lower':>9}{'upper':>9}  {'ratio':>7} (to {base})"
    return [title, head, *lines[1:]]
