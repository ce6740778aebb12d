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
