"""How a model is cut: each parallelism is one function; this is their order, once."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from trainer.backward import Accumulate, Backward, Context, Loss, LossModule

if TYPE_CHECKING:
    import torch

    from trainer.mesh import Layout
    from trainer.schema import Parallel


class Parallelized:
    """What this rank has of a model.

    `module`: holds its parameters. `backward`: makes the gradients of an update. `evaluate(batch)`: (sum, count) of the
    loss, without gradients. `sharded`: it keeps parts only, so that every forward needs all ranks, in evaluation too.
    `counts`: whether what `evaluate` gives is not also another rank's. `settle`: brings together what data ranks keep
    apart (running statistics), before anybody looks at it; collective; None: nothing.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: "Layout",
        backward: Backward,
        evaluate: Callable[[Any], tuple[Tensor, Tensor]],
        *,
        sharded: bool = False,
        counts: bool = True,
        settle: Callable[[], None] | None = None,
    ) -> None:
        self.module = module
        self.layout = layout
        self.backward = backward
        self.evaluate = evaluate
        self.sharded = sharded
        self.counts = counts
        self.settle = settle


def parallelize(
    model: nn.Module, loss: Loss, layout: "Layout", parallel: "Parallel", device: "torch.device"
) -> Parallelized:
    """`model`, whole and on its device, is cut in place; loss(model, batch) -> (sum, count). Collective.

    The order: tensor parallelism changes the modules that all else wraps; recomputation and compilation wrap blocks;
    the pipeline takes away the blocks of other stages; what is left is sharded or copied over the data ranks last.
    """
    whole = LossModule(model, loss)
    if layout.world_size == 1:
        return Parallelized(whole, layout, Accumulate(whole, contextlib.nullcontext), whole)
    from trainer.parallel.batch_norm import Statistics, batch_norms, idle

    if parallel.sync_batch_norm:
        from trainer.parallel.sync_batch_norm import apply_sync_batch_norm

        apply_sync_batch_norm(model)
    norms = batch_norms(model)
    cut = _over_data(model, whole, layout, parallel, device, lambda: idle(norms))
    cut.settle = Statistics(norms).settle if norms else None
    return cut


def _over_data(
    model: nn.Module,
    whole: LossModule,
    layout: "Layout",
    parallel: "Parallel",
    device: "torch.device",
    idle: Callable[[], Context],
) -> Parallelized:
    """Copies or shards over the data ranks; `idle`: around forwards that count nothing."""
    if parallel.strategy == "ddp":
        from trainer.parallel.ddp import apply_ddp

        wrapped = apply_ddp(whole, device, parallel.bucket_mb)
        return Parallelized(wrapped, layout, Accumulate(wrapped, wrapped.no_sync, idle=idle), whole)
    from trainer.models.plan import blocks_of
    from trainer.parallel.fsdp import apply_fsdp, unsynchronized
    from trainer.parallel.meshes import device_mesh, part

    mesh = part(device_mesh(layout, device), "replicate", "shard")
    assert mesh is not None
    methods = ["loss"] if callable(getattr(model, "loss", None)) else []
    apply_fsdp(model, mesh, blocks_of(model), reshard=parallel.strategy == "full", methods=methods)
    backward = Accumulate(whole, lambda: unsynchronized(model), idle=idle)
    return Parallelized(whole, layout, backward, whole, sharded=True)
