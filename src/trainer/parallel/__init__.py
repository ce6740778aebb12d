"""How a model is cut: each parallelism is one function; this is their order, once."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from trainer.backward import Accumulate, Backward, Loss, LossModule

if TYPE_CHECKING:
    import torch

    from trainer.mesh import Layout
    from trainer.schema import Parallel


class Parallelized:
    """What this rank has of a model.

    `module`: holds its parameters. `backward`: makes the gradients of an update. `evaluate(batch)`: (sum, count) of the
    loss, without gradients. `sharded`: it keeps parts only, so that every forward needs all ranks, in evaluation too.
    `counts`: whether what `evaluate` gives is not also another rank's.
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
    ) -> None:
        self.module = module
        self.layout = layout
        self.backward = backward
        self.evaluate = evaluate
        self.sharded = sharded
        self.counts = counts


def parallelize(
    model: nn.Module,
    loss: Loss,
    layout: "Layout",
    parallel: "Parallel",
    device: "torch.device",
    *,
    gathered: "torch.dtype | None" = None,
) -> Parallelized:
    """`model`, whole and on its device, is cut in place; loss(model, batch) -> (sum, count). `gathered`: dtype in which
    sharded weights are used, None for their own. Collective.

    The order: tensor parallelism changes the modules that all else wraps; recomputation and compilation wrap blocks;
    the pipeline takes away the blocks of other stages; what is left is sharded or copied over the data ranks last.
    """
    whole = LossModule(model, loss)
    if layout.world_size == 1:
        return Parallelized(whole, layout, Accumulate(whole, contextlib.nullcontext), whole)
    # DDP takes no gradients wider than their weights: copies of bf16 weights are FSDP2's, with one part each
    if parallel.strategy == "ddp" and not any(each.grad_dtype != each.dtype for each in model.parameters()):
        return _copied(model, whole, layout, parallel, device)
    from trainer.models.plan import blocks_of
    from trainer.parallel.fsdp import apply_fsdp, mixed_precision, unsynchronized
    from trainer.parallel.meshes import device_mesh, part

    mesh = part(device_mesh(layout, device), "replicate", "shard")
    assert mesh is not None
    methods = ["loss"] if callable(getattr(model, "loss", None)) else []
    policy = mixed_precision(gathered)
    apply_fsdp(model, mesh, blocks_of(model), reshard=parallel.strategy == "full", methods=methods, policy=policy)
    return Parallelized(whole, layout, Accumulate(whole, lambda: unsynchronized(model)), whole, sharded=True)


def _copied(
    model: nn.Module, whole: LossModule, layout: "Layout", parallel: "Parallel", device: "torch.device"
) -> Parallelized:
    from functools import partial

    from trainer.parallel.ddp import apply_ddp, refuse_unused

    wrapped = apply_ddp(
        whole,
        device,
        parallel.bucket_mb,
        static_graph=parallel.static_graph,
        find_unused=parallel.unused == "find",
        compress=parallel.compress,
        rank=parallel.powersgd_rank,
    )
    check = partial(refuse_unused, model) if parallel.unused == "error" else None
    return Parallelized(wrapped, layout, Accumulate(wrapped, wrapped.no_sync, check=check), whole)
