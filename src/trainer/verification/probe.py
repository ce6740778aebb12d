"""What is wrong with a model whatever the layout: found by a few forwards of one micro-batch."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from trainer.backward import Loss
from trainer.precision import Policy


class Findings:
    """`problems`: the numbers of a run would be wrong; `notes`: what a reader of the comparison should know."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []


def probe(model: nn.Module, loss: Loss, batch: Any, policy: Policy, device: torch.device, tolerance: float) -> Findings:
    """Forwards of `batch` (on the device) whole and in two parts. Changes buffers of the model, such as BatchNorm's."""
    found = Findings()
    norms = [name for name, module in model.named_modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if norms:
        found.notes.append(
            f"{_some(norms)}: BatchNorm takes its statistics from a micro-batch, so the numbers depend on batch.micro "
            "and parallel.sync_batch_norm, not on the number of ranks"
        )

    def total(samples: Any, seed: int = 0) -> tuple[float, float]:
        torch.manual_seed(seed)
        with torch.no_grad(), policy.autocast(device.type):
            value, count = loss(model, samples)
        return float(value), float(count)

    whole, _ = total(batch)
    if _differ(whole, total(batch)[0], tolerance):
        found.notes.append("two forwards of the same samples differ: the model keeps state, or draws unseeded numbers")
    elif _differ(whole, total(batch, 1)[0], tolerance):
        found.notes.append(
            "the model draws random numbers in its forward (dropout that is no module?): differences are to be expected"
        )
    parts = halves(batch)
    if parts is None:
        return found
    (first, first_count), (second, second_count) = total(parts[0]), total(parts[1])
    if not _differ(whole, first + second, tolerance):
        return found
    both = first_count + second_count
    if both and not _differ(whole, (first * first_count + second * second_count) / both, tolerance):
        found.problems.append(
            "the loss returns a mean where the sum over its counted items belongs: gradients are too small, and "
            'depend on batch.micro; reduction="sum", or times the count'
        )
    elif not norms:
        found.notes.append(
            f"samples of a forward depend on each other (whole {whole:.6g}, in two parts {first + second:.6g}): the "
            "numbers depend on batch.micro"
        )
    return found


def halves(batch: Any) -> tuple[Any, Any] | None:
    """The samples in two parts; None where there is one sample only, or the tensors do not agree how many."""
    sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)}
    if len(sizes) != 1 or (size := sizes.pop()) < 2:
        return None
    middle = size // 2
    first = tree_map_only(Tensor, lambda each: each[:middle], batch)
    return first, tree_map_only(Tensor, lambda each: each[middle:], batch)


def _differ(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) > max(1e-6, tolerance) * max(abs(one), abs(other), 1e-12)


def _some(names: list[str], most: int = 3) -> str:
    shown = ", ".join(name or "the model" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
