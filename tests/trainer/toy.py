"""A tiny language model with weights by formula and data by a small generator, so that right values can be pinned."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, WIDTH = 16, 8


def fill(weight: Tensor, order: int) -> None:
    """Sets entry i of the `order`-th parameter to 0.3 sin(0.7 order + 1.3 (i + 1))."""
    values = [0.3 * math.sin(0.7 * order + 1.3 * (index + 1)) for index in range(weight.numel())]
    with torch.no_grad():
        weight.copy_(torch.tensor(values, dtype=torch.float64).view_as(weight))


class ToyBlock(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, hidden: Tensor) -> Tensor:
        branch = torch.tanh(self.linear(hidden))
        return hidden + functional.dropout(branch, self.dropout, self.training)


class ToyModel(nn.Module):
    """Embedding, residual tanh blocks, linear head; (B, S) ids -> (B, S, 16) logits."""

    def __init__(self, layers: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(ToyBlock(dropout) for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        for order, parameter in enumerate(self.parameters()):
            fill(parameter, order)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)  # type: ignore[no-any-return]


def token_loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Sum of the cross entropy over counted labels, and how many they are."""
    logits, labels = model(batch["tokens"]), batch["labels"]
    total = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    return total, (labels != -100).sum()


def sequences(count: int, length: int, seed: int) -> Tensor:
    """(count, length) ids from a linear congruential generator (the constants of ANSI C's rand)."""
    state, rows = seed, []
    for _ in range(count):
        row = []
        for _ in range(length):
            state = (1103515245 * state + 12345) % 2**31
            row.append((state >> 16) % VOCABULARY)
        rows.append(row)
    return torch.tensor(rows)


def batches(ids: Tensor, counted: list[int] | None, size: int) -> list[tuple[dict[str, Tensor], int]]:
    """Next-token batches of `size` rows; `counted[i]` labels of row i count, the rest are -100."""
    tokens, labels = ids[:, :-1], ids[:, 1:].clone()
    for row, keep in enumerate(counted or []):
        labels[row, keep:] = -100
    return [
        ({"tokens": tokens[i : i + size], "labels": labels[i : i + size]}, min(size, len(ids) - i))
        for i in range(0, len(ids), size)
    ]


def gradient_norm(module: nn.Module) -> float:
    """Euclidean norm of all gradients."""
    return math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in module.parameters() if p.grad is not None))


def flat(module: nn.Module) -> Tensor:
    """All weights in one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
