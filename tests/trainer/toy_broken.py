"""Models, losses and data with a fault that `verify` has to find."""

import os

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.trainer.toy import ToyModel, token_loss
from tests.trainer.toy_data import Sample, Sequences


def mean_loss(model: nn.Module, batch: Sample) -> tuple[Tensor, Tensor]:
    """The mean where the sum belongs."""
    total, count = token_loss(model, batch)
    return total / count, count


class OtherOnSecondRank(ToyModel):
    """Scales its output on rank 1."""

    def forward(self, tokens: Tensor) -> Tensor:
        second = torch.distributed.is_initialized() and torch.distributed.get_rank() == 1
        return super().forward(tokens) * (1.5 if second else 1.0)


class HiddenDropout(ToyModel):
    """Dropout that is no module and no setting."""

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.dropout(super().forward(tokens), 0.5)


class BatchNorm(ToyModel):
    """Samples of a micro-batch depend on each other."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def forward(self, tokens: Tensor) -> Tensor:
        normal: Tensor = self.norm(super().forward(tokens).transpose(1, 2))
        return normal.transpose(1, 2)


class OwnSamples(Sequences):
    """Other samples in every process."""

    def __getitem__(self, index: int) -> Sample:
        sample = super().__getitem__(index)
        return {**sample, "tokens": (sample["tokens"] + os.getpid()) % 16}
