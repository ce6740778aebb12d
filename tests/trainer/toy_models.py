"""Models whose right loss is known."""

import torch
from torch import Tensor, nn


class PlusOne(nn.Module):
    """Predicts the id before plus one, surely. The one weight does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, tokens: Tensor) -> Tensor:
        logits = torch.full((*tokens.shape, 16), -20.0, dtype=self.weight.dtype)
        logits.scatter_(-1, ((tokens + 1) % 16).unsqueeze(-1), 20.0)
        return logits + self.weight


def with_batch_norm() -> nn.Module:
    """(B, 2, 4, 4) images -> (B, 3) scores, with a batch norm."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def picture_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of the cross entropy over images, and how many they are."""
    scores = model(batch["inputs"])
    return nn.functional.cross_entropy(scores, batch["labels"], reduction="sum"), len(scores)
