"""How a model is cut: each parallelism is one function; this is their order, once."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    import torch

    from trainer.mesh import Layout
    from trainer.schema import Parallel


class Parallelized:
    """`module`: gives the loss, over what this rank keeps of the model. `no_sync`: a context in which backward adds to
    the gradients of this rank alone. `sharded`: a
    rank keeps parts only, so that every forward needs all ranks, in evaluation too."""

    def __init__(
        self, module: nn.Module, no_sync: Callable[[], contextlib.AbstractContextManager[Any]], sharded: bool
    ) -> None:
        self.module = module
        self.no_sync = no_sync
        self.sharded = sharded


def parallelize(
    module: nn.Module, model: nn.Module, layout: "Layout", parallel: "Parallel", device: "torch.device"
) -> Parallelized:
    """`module`: forward(batch) -> (sum, count), with `model` inside, whole and on its device. Collective."""
    if layout.data_ranks == 1:
        return Parallelized(module, contextlib.nullcontext, False)
    if parallel.strategy == "ddp":
        from trainer.parallel.ddp import apply_ddp

        wrapped = apply_ddp(module, device, parallel.bucket_mb)
        return Parallelized(wrapped, wrapped.no_sync, False)
    from torch.distributed.device_mesh import init_device_mesh

    from trainer.parallel.fsdp import apply_fsdp, find_units, unsynchronized

    shape = {name: size for name, size in layout.shape().items() if name == "shard" or size > 1}
    mesh = init_device_mesh(device.type, tuple(shape.values()), mesh_dim_names=tuple(shape))
    methods = ["loss"] if callable(getattr(model, "loss", None)) else []
    apply_fsdp(model, mesh, find_units(model), reshard=parallel.strategy == "full", methods=methods)
    return Parallelized(module, lambda: unsynchronized(model), True)
