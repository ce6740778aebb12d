"""Batches in page-locked memory."""

from collections.abc import Callable

import torch

from trainer.data.source import Batch


def pinned(batch: Batch) -> Batch:
    """The batch in page-locked memory, from which copies to a CUDA device need not wait."""
    return map_tensors(torch.Tensor.pin_memory, batch)


def map_tensors(function: Callable[[torch.Tensor], torch.Tensor], batch: Batch) -> Batch:
    """The batch with `function` applied to every tensor in it, through dicts, lists and (named) tuples."""
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, dict):
        return type(batch)({key: map_tensors(function, value) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, value) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map_tensors(function, value) for value in batch)
    return batch
