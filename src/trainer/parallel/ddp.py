"""Data parallelism: the same weights on every rank, gradients averaged while backward still runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from trainer.errors import UserError

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

_NAMED = 5  # unused parameters that an error names


def apply_ddp(
    module: nn.Module,
    device: torch.device,
    bucket_mb: int,
    *,
    static_graph: bool = False,
    find_unused: bool = False,
    compress: str = "none",
    rank: int = 4,
) -> "DistributedDataParallel":
    """Wraps a module whose forward gives the loss, so that the model inside keeps its own names and attributes.

    Rank 0's weights and buffers are sent to all ranks. Buffers (BatchNorm statistics) stay each rank's own after that.
    `static_graph`: the same parameters are used in every update, with one forward each. `find_unused`: some may not be.
    `compress`: how gradients are sent: none (as they are), bf16, fp16, powersgd (matrices of that `rank`).
    """
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(
        module,
        device_ids=[device.index] if device.type == "cuda" else None,
        forward_sync_buffers=False,
        bucket_cap_mb=bucket_mb,
        gradient_as_bucket_view=True,
        static_graph=static_graph,
        find_unused_parameters=find_unused,
    )
    if compress != "none":
        compress_gradients(wrapped, compress, rank)
    return wrapped


def compress_gradients(wrapped: "DistributedDataParallel", compress: str, rank: int) -> None:
    """Lets torch's own hook send the gradients in fewer bytes. PowerSGD (Vogels et al., 2019) keeps what it left out
    for the next update; its first two updates are sent whole, as buckets are laid out anew after the first."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    if compress == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

        state = PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
        wrapped.register_comm_hook(state, powerSGD_hook)
        return
    hook = default_hooks.bf16_compress_hook if compress == "bf16" else default_hooks.fp16_compress_hook
    wrapped.register_comm_hook(None, hook)


def trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """What has to get a gradient, by name."""
    return [(name, each) for name, each in model.named_parameters() if each.requires_grad]


def refuse_unused(parameters: Sequence[tuple[str, nn.Parameter]]) -> None:
    """UserError that names what got no gradient in this update: DDP would wait for it, on all ranks, in the next."""
    unused = [name for name, each in parameters if each.grad is None]
    if not unused:
        return
    named = ", ".join(unused[:_NAMED]) + (f" and {len(unused) - _NAMED} more" if len(unused) > _NAMED else "")
    raise UserError(
        f"the loss does not depend on {named}: other ranks would hang waiting for its gradient",
        "Remove it, set requires_grad to False, or set parallel.unused to find if only some updates use it.",
    )
