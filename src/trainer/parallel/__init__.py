"""How a model is cut: each parallelism is one function; this is their order, once."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from trainer.backward import Accumulate, Backward, Context, Loss, LossModule

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

    from trainer.mesh import Layout
    from trainer.models.recording import Recording
    from trainer.schema import Memory, Parallel


class Parallelized:
    """What this rank has of a model.

    `module`: holds its parameters. `backward`: makes the gradients of an update. `evaluate(batch)`: (sum, count) of the
    loss, without gradients. `spread`: ranks that keep the optimizer's state between them. `sharded`: it keeps parts
    only, so that every forward needs all ranks, in evaluation too. `counts`: whether what `evaluate` gives is not also
    another rank's. `counted_elsewhere`: parameters of which another rank has a copy that counts in the gradient's norm.
    `stages`: the ranks that have the other stages of a pipeline. `settle`: brings together what data ranks keep apart
    (running statistics), before anybody looks at it; collective; None: nothing.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: "Layout",
        backward: Backward,
        evaluate: Callable[[Any], tuple[Tensor, Tensor]],
        *,
        spread: "ProcessGroup | None" = None,
        sharded: bool = False,
        counts: bool = True,
        counted_elsewhere: frozenset[nn.Parameter] = frozenset(),
        stages: "ProcessGroup | None" = None,
        settle: Callable[[], None] | None = None,
    ) -> None:
        self.module = module
        self.layout = layout
        self.backward = backward
        self.evaluate = evaluate
        self.spread = spread
        self.sharded = sharded
        self.counts = counts
        self.counted_elsewhere = counted_elsewhere
        self.stages = stages
        self.settle = settle


class _Task:
    """What is to be cut, and how; see parallelize."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        layout: "Layout",
        parallel: "Parallel",
        device: "torch.device",
        gathered: "torch.dtype | None",
        memory: "Memory | None",
        compiled: bool,
        recording: "Recording | None",
    ) -> None:
        self.model = model
        self.loss = loss
        self.layout = layout
        self.parallel = parallel
        self.device = device
        self.gathered = gathered
        self.memory = memory
        self.compiled = compiled
        self.recording = recording
        self.copies = parallel.strategy in ("ddp", "optimizer")


def parallelize(
    model: nn.Module,
    loss: Loss,
    layout: "Layout",
    parallel: "Parallel",
    device: "torch.device",
    *,
    gathered: "torch.dtype | None" = None,
    memory: "Memory | None" = None,
    compiled: bool = False,
    recording: "Recording | None" = None,
) -> Parallelized:
    """`model`, whole and on its device, is cut in place; loss(model, batch) -> (sum, count). Collective.

    The order: tensor parallelism changes the modules that all else wraps; recomputation and compilation wrap blocks;
    the pipeline takes away the blocks of other stages; what is left is sharded or copied over the data ranks last.
    `gathered`: number format of weights that FSDP2 gathers; None: as they are kept. `memory`: None: all is kept where
    it is. `compiled`: every block is. `recording`: how the tensors are made of a `model` that has none yet.
    """
    task = _Task(model, loss, layout, parallel, device, gathered, memory, compiled, recording)
    if layout.world_size == 1:
        _wrap_blocks(task)
        whole = LossModule(model, loss)
        return Parallelized(whole, layout, Accumulate(whole, contextlib.nullcontext), whole)
    if layout.context > 1:
        from trainer.parallel.context import apply_context
        from trainer.parallel.meshes import context_mesh

        apply_context(model, context_mesh(layout, device))
    alone = task.copies and layout.tensor == layout.pipeline == 1 and not _widened(model)
    from trainer.parallel.batch_norm import Statistics, batch_norms

    mesh, group = None, None
    if not (alone and parallel.strategy == "ddp"):
        from trainer.parallel.meshes import data_group, device_mesh

        mesh = device_mesh(layout, device, copies=task.copies)
        group = data_group(mesh) if batch_norms(model) else None
    if parallel.sync_batch_norm and layout.data_ranks > 1:
        from trainer.parallel.sync_batch_norm import apply_sync_batch_norm

        apply_sync_batch_norm(model, group)
    if alone:
        _wrap_blocks(task)
        cut = _copied(task, mesh)
    else:
        assert mesh is not None
        cut = _in_parts(task, mesh)
    norms = batch_norms(model)
    cut.settle = Statistics(norms, group).settle if norms and layout.data_ranks > 1 else None
    return cut


def _wrap_blocks(task: _Task) -> None:
    """What happens inside of the blocks' forwards: names and hooks stay as they are."""
    memory = task.memory
    recompute = memory.recompute if memory is not None else "none"
    if recompute == "none" and not task.compiled:
        return
    from trainer.models.plan import blocks_of

    blocks = blocks_of(task.model)
    if memory is not None and recompute not in ("none", "budget"):
        from trainer.parallel.recompute import apply_recompute
        from trainer.refuse_memory import check_recompute

        check_recompute(recompute, task.layout.pipeline, task.parallel.schedule)
        apply_recompute(blocks, recompute, memory.every)
    if task.compiled:
        from trainer.parallel.compile import apply_compile

        apply_compile(blocks, task.device, memory.budget if memory is not None and recompute == "budget" else None)


def _fill(task: _Task) -> None:
    """Gives what this rank keeps of a recorded model its values, once; else all have been there."""
    model, recording = task.model, task.recording
    if recording is not None and any(each.is_meta for each in model.parameters()):
        from trainer.checkpoint.parts import own_part
        from trainer.models.initialize import materialize

        materialize(model, recording, partial(own_part, device=task.device))


def _widened(model: nn.Module) -> bool:
    """Whether gradients are wider than weights, which DDP does not take: such copies are FSDP2's, of one part each."""
    return any(each.grad_dtype != each.dtype for each in model.parameters())


def _idle(model: nn.Module) -> Callable[[], Context]:
    """Around forwards that count nothing."""
    from trainer.parallel.batch_norm import batch_norms, idle

    norms = batch_norms(model)
    return (lambda: idle(norms)) if norms else contextlib.nullcontext


def _copied(task: _Task, mesh: "DeviceMesh | None") -> Parallelized:
    """All of the model on every rank; with a `mesh`, but for the optimizer's state."""
    from trainer.parallel.ddp import apply_ddp, refuse_unused, trained

    model, parallel = task.model, task.parallel
    whole = LossModule(model, task.loss)
    wrapped = apply_ddp(
        whole,
        task.device,
        parallel.bucket_mb,
        static_graph=parallel.static_graph,
        find_unused=parallel.unused == "find",
        compress=parallel.compress,
        rank=parallel.powersgd_rank,
    )
    check = partial(refuse_unused, trained(model)) if parallel.unused == "error" else None
    backward = Accumulate(wrapped, wrapped.no_sync, check=check, idle=_idle(model))
    spread = mesh["replicate"].get_group() if mesh is not None and task.layout.replicate > 1 else None
    return Parallelized(wrapped, task.layout, backward, whole, spread=spread)


def _in_parts(task: _Task, mesh: "DeviceMesh") -> Parallelized:
    """Parts of the model on every rank, by torch's DTensors, stages or both."""
    from trainer.parallel.fsdp import apply_fsdp, mixed_precision, take_over

    model, layout, parallel = task.model, task.layout, task.parallel
    if task.recording is None:
        take_over(model)
    counts = True
    if layout.tensor > 1:
        from trainer.models.loss import takes_parts
        from trainer.models.plan import tensor_plan
        from trainer.parallel.tensor import apply_tensor

        cut_loss = parallel.loss_parallel and takes_parts(task.loss)
        apply_tensor(model, mesh["tensor"], tensor_plan(model), sequence=parallel.sequence_parallel, loss=cut_loss)
        counts = mesh.get_local_rank("tensor") == 0
    _wrap_blocks(task)
    shard = partial(
        apply_fsdp,
        reshard=parallel.strategy == "full",
        policy=mixed_precision(task.gathered),
        offload=task.memory is not None and task.memory.offload == "parameters" and task.device.type != "cpu",
        prefetch=parallel.prefetch,
    )
    return (_staged if layout.pipeline > 1 else _sharded)(task, mesh, counts, shard)


def _sharded(task: _Task, mesh: "DeviceMesh", counts: bool, shard: Callable[..., None]) -> Parallelized:
    """A part of the model on every rank. DDP takes no DTensors: copies of weights that tensor ranks cut are FSDP2's
    too, with one part each."""
    from trainer.models.plan import blocks_of
    from trainer.parallel.fsdp import unsynchronized
    from trainer.parallel.meshes import part

    model = task.model
    whole = LossModule(model, task.loss)
    no_sync: Callable[[], Context] = contextlib.nullcontext
    if task.layout.averaged > 1:
        data = part(mesh, "replicate", "shard")
        assert data is not None
        methods = ["loss"] if callable(getattr(model, "loss", None)) else []
        shard(model, data, blocks_of(model), methods=methods)
        no_sync = partial(unsynchronized, model)
    _fill(task)
    backward = Accumulate(whole, no_sync, counts, idle=_idle(model))
    return Parallelized(whole, task.layout, backward, whole, sharded=True, counts=counts)


def _staged(task: _Task, mesh: "DeviceMesh", counts: bool, shard: Callable[..., None]) -> Parallelized:
    """Some stages of the model on every rank, each copied or sharded over the data ranks by itself."""
    from trainer.parallel.meshes import part
    from trainer.parallel.pipeline import Pipeline

    model, parallel = task.model, task.parallel
    made = Pipeline(
        model,
        task.loss,
        mesh["pipeline"].get_group(),
        task.device,
        schedule=parallel.schedule,
        virtual=parallel.virtual,
        cut=parallel.cut,
        counts=counts,
    )
    made.idle = _idle(model)
    spread = None
    if task.layout.averaged > 1 and task.copies:
        copies = mesh["replicate"].get_group()
        made.average_over(copies, parallel.bucket_mb)
        spread = copies if parallel.strategy == "optimizer" else None
    elif task.layout.averaged > 1:
        data = part(mesh, "replicate", "shard")
        assert data is not None
        made.check_shardable(parallel.strategy == "full")
        for module in made.modules.values():
            shard(module, data, module.units)
    _fill(task)
    return Parallelized(
        model,
        task.layout,
        made,
        made.evaluate,
        spread=spread,
        sharded=True,
        counts=made.counts,
        counted_elsewhere=made.shared.counted_elsewhere(),
        stages=made.group,
    )
