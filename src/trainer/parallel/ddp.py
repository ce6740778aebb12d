"""Data parallelism: the same weights on every rank, gradients averaged while backward still runs."""

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


def apply_ddp(module: nn.Module, device: torch.device, bucket_mb: int) -> "DistributedDataParallel":
    """Wraps a module whose forward gives the loss, so that the model inside keeps its own names and attributes.

    Rank 0's weights and buffers are sent to all ranks. Buffers (BatchNorm statistics) stay each rank's own after that.
    """
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(
        module,
        device_ids=[device.index] if device.type == "cuda" else None,
        forward_sync_buffers=False,
        bucket_cap_mb=bucket_mb,
        gradient_as_bucket_view=True,
    )
