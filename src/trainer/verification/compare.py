"""Differences between two runs of the same updates."""

from typing import Any

from torch import Tensor

from trainer.verification.trial import Numbers

# relative, for losses, norms and gradients; bf16 and fp16 round at every sum
TOLERANCES = {"fp64": 1e-10, "fp32": 1e-5, "bf16": 2e-2, "fp16": 1e-2}
LEAST = 1e-3  # a tensor is measured by its own norm, or by this share of the whole where it is smaller


def compare(one: Numbers, other: Numbers, tolerance: float) -> dict[str, Any]:
    """Relative differences, the worst tensor of each kind and its name, and whether all are within `tolerance`.

    Gradients of the first update count by tensor, weights as a whole: where a gradient vanishes, an optimizer such as
    Adam makes a step of its rounding.
    """
    losses, norms = _series(one.losses, other.losses), _series(one.norms, other.norms)
    gradients, weights = _tensors(one.gradients, other.gradients), _tensors(one.weights, other.weights)
    differences = [losses["worst"], norms["worst"], gradients["worst"], weights["whole"]]
    missing = sorted(one.gradients.keys() ^ other.gradients.keys())
    return {
        "equal": all(each <= tolerance for each in differences) and not missing,
        "tolerance": tolerance,
        "loss": losses,
        "norm": norms,
        "gradients": gradients,
        "weights": weights,
        "without_gradient": missing,
    }


def _series(first: list[float], second: list[float]) -> dict[str, Any]:
    differences = [_relative(abs(a - b), abs(a)) for a, b in zip(first, second, strict=True)]
    return {"one": first, "other": second, "worst": max(differences), "update": differences.index(max(differences)) + 1}


def _tensors(first: dict[str, Tensor], second: dict[str, Tensor]) -> dict[str, Any]:
    shared = [name for name in first if name in second and first[name].is_floating_point()]
    sizes = {name: float(first[name].double().norm()) for name in shared}
    gaps = {name: float((first[name] - second[name]).double().norm()) for name in shared}
    size = sum(each**2 for each in sizes.values()) ** 0.5
    by_name = {name: _relative(gaps[name], max(sizes[name], LEAST * size)) for name in shared}
    where = max(by_name, key=lambda name: by_name[name], default="")
    whole = _relative(sum(each**2 for each in gaps.values()) ** 0.5, size)
    return {"whole": whole, "worst": by_name.get(where, 0.0), "where": where, "by_parameter": by_name}


def _relative(difference: float, size: float) -> float:
    """NaN, which equals nothing, counts as endlessly far."""
    if difference != difference:
        return float("inf")
    return difference / size if size else (0.0 if difference == 0 else float("inf"))


def odd_batches(one: Numbers, others: list[tuple[int, int, list[list[str]]]], data_ranks: int) -> list[str]:
    """Sentences about ranks that saw other samples than one process: `others` are (rank, its data index, digests)."""
    found = []
    for rank, index, updates in others:
        for number, mine in enumerate(updates):
            expected = one.batches[number][index::data_ranks]
            if any(own and own != whole for own, whole in zip(mine, expected, strict=False)):
                found.append(
                    f"rank {rank} got other samples than one process in update {number + 1}: the data set does not "
                    "give the same sample for the same index (numbers drawn without trainer's seed, a shared state?)"
                )
                break
    return found
