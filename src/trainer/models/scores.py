"""How often a classifier is right, as counts: what can be added over micro-batches and ranks without error."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainer.models import loss as losses

TOP = 5


class Scored:
    """A classifier's loss, loss(model, batch) -> (sum, count), which adds up `hits` of its batches while `counting`."""

    def __init__(self, loss: losses.Loss) -> None:
        self.loss = loss
        self.counting = False
        self.hits: Tensor | None = None

    def __call__(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        if not self.counting or (isinstance(batch, Mapping) and "tokens" in batch):
            return self.loss(model, batch)
        inputs, labels = losses.inputs_and_labels(batch)
        logits = model(inputs)
        cut = getattr(logits, "full_tensor", None)  # over the classes
        found = hits(cut() if cut else logits, labels)
        self.hits = found if self.hits is None else self.hits + found
        return losses.cross_entropy(logits, labels)

    def taken(self) -> list[int]:
        """The hits since the last call."""
        found, self.hits = self.hits, None
        return [0, 0, 0] if found is None else found.tolist()


def hits(logits: Tensor, labels: Tensor) -> Tensor:
    """(3,): how many of the labels (B,) are the largest of their logits (B, classes), how many are among the five
    largest, and how many had more than five to choose from. Labels of -100 are none of these."""
    among = logits.topk(min(TOP, logits.shape[-1])).indices == labels.unsqueeze(-1)
    several = (labels != losses.IGNORED) & (logits.shape[-1] > TOP)
    return torch.stack((among[..., 0].sum(), among.sum(), several.sum()))


def shares(found: list[float], count: float) -> dict[str, float]:
    """{"accuracy", "top5_accuracy"} from sums of `hits`, the latter where there are more than five classes; empty where
    nothing was classified."""
    right, among, several = found
    if not (right or among or several):
        return {}
    result = {"accuracy": right / count}
    if several:
        result["top5_accuracy"] = among / count
    return result
