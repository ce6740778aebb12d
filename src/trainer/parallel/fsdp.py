"""Sharded data parallelism (FSDP2): a rank keeps its part of each weight, gradient and optimizer state."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def apply_fsdp(
    model: nn.Module,
    mesh: "DeviceMesh",
    units: Sequence[nn.Module],
    *,
    reshard: bool,
    methods: Sequence[str] = (),
    policy: MixedPrecisionPolicy | None = None,
    offload: bool = False,
    prefetch: int = 0,
) -> None:
    """Shards `model` in place over the last dimension of `mesh`; a first dimension, if there is one, holds copies.

    The weights must be the same on all ranks of the mesh (`take_over`). Each of `units` (parts of the model, none
    inside another) is gathered before it is used, the rest of the model as one more; `reshard`: and given up right
    after its forward, to be gathered again for its backward. Averages gradients over all ranks of the mesh. `methods`:
    names of methods of the model that are called like a forward. `policy`: formats of gathered weights and of gradients
    on their way; without it those of the weights. `offload`: the parts lie in the host's memory. `prefetch`: units that
    are gathered ahead of the one in use, in the order of `units`; 0: as torch does it.
    """
    policy = policy or MixedPrecisionPolicy()
    place = CPUOffloadPolicy() if offload else OffloadPolicy()
    for unit in units:
        fully_shard(unit, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy, offload_policy=place)
    # what is used at the beginning and at the end of a forward is needed again at once
    fully_shard(model, mesh=mesh, reshard_after_forward=False, mp_policy=policy, offload_policy=place)
    if prefetch:
        gather_ahead(units, prefetch)
    for name in methods:
        register_fsdp_forward_method(model, name)


def gather_ahead(units: Sequence[nn.Module], count: int) -> None:
    """While one of `units` works, the weights of the next `count` are on their way, in backward those before it."""
    sharded: list[FSDPModule] = [each for each in units if isinstance(each, FSDPModule)]
    assert len(sharded) == len(units)
    for index, unit in enumerate(sharded):
        unit.set_modules_to_forward_prefetch(sharded[index + 1 : index + 1 + count])
        unit.set_modules_to_backward_prefetch(sharded[max(0, index - count) : index][::-1])


def mixed_precision(gathered: torch.dtype | None) -> MixedPrecisionPolicy:
    """Weights gathered and used as `gathered`, None for as they are kept. Gradients are added up over micro-batches and
    over ranks in fp32 all the same: 512 ones are 256 in bf16."""
    return MixedPrecisionPolicy(param_dtype=gathered, reduce_dtype=torch.float32 if gathered else None)


def take_over(model: nn.Module) -> None:
    """Rank 0's weights and buffers on all ranks, as DDP does it: builders that draw without a seed differ."""
    for tensor in model.state_dict().values():
        if isinstance(tensor, torch.Tensor):
            torch.distributed.broadcast(tensor.detach(), 0)


@contextlib.contextmanager
def unsynchronized(model: nn.Module) -> Iterator[None]:
    """Backward adds to whole gradients of this rank's own, which the next one outside of it reduces and shards."""
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)
