"""A comparison for people; no torch, since the parent of the ranks shows it."""

from collections.abc import Iterator
from typing import Any


def lines(found: dict[str, Any]) -> Iterator[str]:
    """`found`: what `trainer.verification.rank.verdict` gave."""
    shape = " x ".join(f"{name} {size}" for name, size in found["layout"].items() if size > 1) or "one rank"
    cut = f"{found['ranks']} ranks ({shape}, {found['strategy']})"
    yield f"one rank against {cut}, {found['compute']}, {found['updates']} updates"
    if found.get("norm_group"):
        yield f"batch norms take their statistics over the same {found['norm_group']} samples in both"
    yield f"{'':<20} {'one rank':>14} {'layout':>14} {'difference':>11}"
    tolerance = found["tolerance"]
    for name in ("loss", "norm"):
        series = found[name]
        at = series["update"] - 1
        yield (
            f"{name + f' of update {at + 1}':<20} {series['one'][at]:>14.8g} {series['other'][at]:>14.8g} "
            f"{_difference(series['worst'], tolerance)}"
        )
    gradients, weights = found["gradients"], found["weights"]
    yield f"{'worst gradient':<50} {_difference(gradients['worst'], tolerance)}  {gradients['where']}"
    yield f"{'all weights':<50} {_difference(weights['whole'], tolerance)}"
    yield f"{'worst weight':<50} {weights['worst']:>11.1e}  {weights['where']}"
    far = [name for name, size in gradients["by_parameter"].items() if not size <= tolerance]
    if far:
        yield f"{len(far)} of {len(gradients['by_parameter'])} gradients are too far: {_some(far)}"
    if found["without_gradient"]:
        yield f"a gradient on one side only: {_some(found['without_gradient'])}"
    for note in found["notes"]:
        yield f"note: {note}"
    for problem in found["problems"]:
        yield f"problem: {problem}"
    yield f"{'equal' if found['equal'] else 'NOT equal'} (tolerance {tolerance:g}, relative)"


def _difference(size: float, tolerance: float) -> str:
    return f"{size:>11.1e}" + ("" if size <= tolerance else " !")


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
