"""Recomputation: what a block's forward made is let go, and made again when backward comes to the block."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from trainer.errors import UserError

Contexts = tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]

# what costs the most to make again for what it takes to keep: products of matrices, attention, convolutions, and what
# other ranks have sent
EXPENSIVE = frozenset(
    {
        "aten::mm",
        "aten::addmm",
        "aten::convolution",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_fused_attention_overrideable",
        "_c10d_functional::all_reduce",
        "_c10d_functional::reduce_scatter_tensor",
        "_c10d_functional::all_gather_into_tensor",
        "_c10d_functional::all_to_all_single",
    }
)


def apply_recompute(blocks: Sequence[nn.Module], mode: str, every: int = 1) -> None:
    """Changes the forwards of `blocks`, which are called in this order, in place; their names stay.

    `mode`: `full` keeps a block's inputs only; `every` does so for the first block and every `every`-th after it;
    `selective` keeps the outputs of expensive operators too. The random state and autocast are those of the first time,
    and what a forward writes into buffers (BatchNorm's statistics) is written once.
    """
    assert mode in ("full", "every", "selective"), mode
    if not blocks:
        raise UserError(
            "nothing can be recomputed: the model has no list of modules, and no plan() that names its blocks",
            "Define plan() in the model to return a trainer.Plan, or remove memory.recompute.",
            2,
        )
    for index, block in enumerate(blocks):
        if mode != "every" or index % every == 0:
            block.__dict__["forward"] = recomputed(block, selective=mode == "selective")


def recomputed(block: nn.Module, selective: bool) -> Callable[..., Any]:
    """The forward of `block`, recomputed in backward."""
    options: dict[str, Any] = {}
    buffers = any(True for _ in block.buffers())
    if selective or buffers:
        options["context_fn"] = partial(_contexts, block if buffers else None, selective)
    return partial(checkpoint, block.forward, use_reentrant=False, **options)


def _contexts(block: nn.Module | None, selective: bool) -> Contexts:
    """What the first forward and the second run in; `block`: keeps its buffers in the second."""
    first: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    second: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if selective:
        first, second = create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]  # none in torch
    return first, second if block is None else _unwritten(block, second)


def _policy(context: Any, operator: Any, *arguments: Any, **options: Any) -> CheckpointPolicy:
    expensive = operator._schema.name in EXPENSIVE
    return CheckpointPolicy.MUST_SAVE if expensive else CheckpointPolicy.PREFER_RECOMPUTE


@contextlib.contextmanager
def _unwritten(block: nn.Module, inner: contextlib.AbstractContextManager[Any]) -> Iterator[None]:
    """The block's buffers are afterwards as they were before."""
    kept = [(buffer, buffer.detach().clone()) for buffer in block.buffers()]
    try:
        with inner:
            yield
    finally:
        with torch.no_grad():
            for buffer, before in kept:
                buffer.copy_(before)
