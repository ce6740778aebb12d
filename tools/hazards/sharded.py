"""Calls of training that is cut into pieces: FSDP2, DTensor, pipelines, DCP; and the compiler after them."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from tools.hazards.common import call, loaded, network, values


@contextmanager
def group() -> Iterator[Any]:
    """A group of one rank; its mesh."""
    torch = loaded()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    from torch.distributed.device_mesh import init_device_mesh

    yield init_device_mesh("cpu", (1,), mesh_dim_names=("shard",))
    torch.distributed.destroy_process_group()


def sharded(mesh: Any) -> tuple[Any, Any, Any]:
    """A sharded network and its AdamW after two clipped steps, and the last norm."""
    torch = loaded()
    from torch.distributed.fsdp import fully_shard

    model = network()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    norm = None
    for _ in range(2):
        model(values()).square().mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer, norm


def full(state: Any) -> list[Any]:
    """The tensors of a state, whole, by name; copies, for a group of one shares the memory of its only shard."""
    whole = [[name, each.full_tensor() if hasattr(each, "full_tensor") else each] for name, each in state.items()]
    return [[name, each.clone()] for name, each in whole]


@call
def sharded_training() -> Any:
    torch = loaded()
    with group() as mesh:
        model, optimizer, norm = sharded(mesh)
        model.load_state_dict(model.state_dict())
        optimizer.load_state_dict(optimizer.state_dict())
        moments = [each["exp_avg"].full_tensor() for each in optimizer.state_dict()["state"].values()]
        model.unshard()
        model.reshard()
        model.set_requires_gradient_sync(False)
        model(values()).sum().backward()
        with torch.no_grad():
            return norm.full_tensor(), full(model.state_dict()), moments, model(values()), str(norm.placements)


@call
def sharded_mixed() -> Any:
    torch = loaded()
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with group() as mesh:
        with torch.device("meta"):
            model = network()
        fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        model.to_empty(device="cpu")
        for parameter in model.parameters():
            torch.nn.init.constant_(parameter, 0.125)
        output = torch.utils.checkpoint.checkpoint(model, values(), use_reentrant=False)
        output.float().square().mean().backward()
        return output, [parameter.grad.full_tensor() for parameter in model.parameters()]


@call
def sharded_then_compiled() -> Any:
    torch = loaded()
    with group() as mesh:
        model, optimizer, _ = sharded(mesh)
        compiled = torch.compile(model, backend="aot_eager")
        loss = compiled(values()).square().mean()
        loss.backward()
        optimizer.step()
        return loss, compiled(values()), model(values())


@call
def tensor_operators() -> Any:
    torch = loaded()
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    with group() as mesh:
        found = []
        for placements in ([Shard(0)], [Shard(1)], [Replicate()]):
            given = distribute_tensor(values(), mesh, placements)
            weight = distribute_tensor(values() + 0.5, mesh, [Replicate()])
            results: tuple[Any, ...] = (
                given.clamp(min=-0.5, max=0.5),
                torch.addmm(weight[:, :5], given, weight.T),
                torch.nn.functional.gelu(given) * 2 + 1,
                given.softmax(-1),
                given.view(3, 10) if placements == [Replicate()] else given.unsqueeze(0),
                torch.where(given > 0, given, weight),
                given.sum(0, keepdim=True),
                given.norm(),
                given.to(torch.bfloat16).transpose(0, 1).contiguous(),
                torch.cat([given, weight], 1).split(4, 1)[0],
                given.sort(0)[0],
                torch.nn.functional.layer_norm(given, (6,)),
                given.redistribute(mesh, [Replicate()]).cumsum(0),
            )
            found += [[each.full_tensor(), str(each.placements), list(each.stride())] for each in results]
        partial = torch.distributed.tensor.DTensor.from_local(values(), mesh, [Partial()])
        return found, partial.redistribute(mesh, [Shard(0)]).to_local(), mesh["shard"].size()


@call
def tensor_unsupported() -> Any:
    torch = loaded()
    from torch.distributed.tensor import Shard, distribute_tensor

    with group() as mesh:
        given = distribute_tensor(values(), mesh, [Shard(0)])
        texts = []
        for wrong in (
            lambda: torch.linalg.svd(given),
            lambda: given @ given,
            lambda: given + values(),
            lambda: given.view(7, 7),
            lambda: torch.unique(given),
        ):
            try:
                texts.append(f"gave {type(wrong()).__name__}")
            except Exception as error:
                texts.append(f"{type(error).__name__}: {error}".split("\n")[0])
        return texts


@call
def tensor_parallel() -> Any:
    torch = loaded()
    from torch.distributed.tensor import parallel

    with group() as mesh:
        model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.SiLU(), torch.nn.Linear(12, 3))
        torch.nn.init.constant_(model[0].weight, 0.25)
        torch.nn.init.constant_(model[2].weight, -0.5)
        plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
        parallel.parallelize_module(model, mesh, plan)
        loss = model(values()).square().mean()
        loss.backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        return loss - model(values()).square().mean(), model[0].weight.grad.full_tensor()


@call
def saved_in_parts() -> Any:
    torch = loaded()
    parts: Any = import_module("torch.distributed.checkpoint")
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_state_dict,
        set_state_dict,
    )

    with group() as mesh, tempfile.TemporaryDirectory() as folder:
        model, optimizer, _ = sharded(mesh)
        weights, state = get_state_dict(model, optimizer)
        before = full(weights)
        parts.save({"model": weights, "optimizer": state}, checkpoint_id=folder)
        files = sorted(path.name for path in Path(folder).iterdir())
        parts.async_save({"model": weights}, checkpoint_id=f"{folder}/later").result()
        model(values()).sum().backward()
        optimizer.step()
        changed = full(get_model_state_dict(model))
        weights, state = get_state_dict(model, optimizer)
        parts.load({"model": weights, "optimizer": state}, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
        read = full(get_model_state_dict(model))
        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        later = {"model": {name: torch.zeros_like(each) for name, each in whole.items()}}
        parts.load(later, checkpoint_id=f"{folder}/later")
        return before, changed, read, files, list(whole), list(later["model"].values()), sorted(state)


@call
def names_of_compiled() -> Any:
    torch = loaded()
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    plain = list(get_model_state_dict(network()))
    compiled = torch.nn.Sequential(torch.compile(network(), backend="eager"))
    return plain, list(get_model_state_dict(compiled)), list(get_model_state_dict(torch.compile(network())))


def _pipeline(rank: int, port: int) -> Any:
    """Losses and gradients of a rank of two under three schedules, and the error for a compiled stage."""
    torch = loaded()
    pipelining: Any = import_module("torch.distributed.pipelining")
    store = torch.distributed.TCPStore("127.0.0.1", port, 2, is_master=rank == 0)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)

    def stage(index: int, count: int, compiled: bool = False) -> Any:
        torch.manual_seed(index)
        layer = torch.nn.Linear(6, 6)
        module = torch.compile(layer, backend="eager") if compiled else layer
        return pipelining.PipelineStage(module, index, count, torch.device("cpu"))

    def square(output: Any, target: Any) -> Any:
        return (output - target).square().mean()

    found: list[Any] = []
    for kind in (pipelining.ScheduleGPipe, pipelining.Schedule1F1B, pipelining.ScheduleInterleaved1F1B):
        many = kind is pipelining.ScheduleInterleaved1F1B
        stages = [stage(rank + 2 * turn, 4 if many else 2) for turn in range(2 if many else 1)]
        schedule = kind(stages if many else stages[0], 4, loss_fn=square)
        losses: list[Any] = []
        inputs = torch.cat([values(), values()])[:8]
        schedule.step(*([inputs] if rank == 0 else []), target=inputs, losses=losses)
        found.append([losses, [each.grad for part in stages for each in part.submod.parameters()]])
    try:
        pipelining.ScheduleInterleavedZeroBubble([stage(rank, 4), stage(rank + 2, 4, True)], 4, loss_fn=square)
        found.append("taken")
    except RuntimeError as error:
        found.append(str(error))
    torch.distributed.barrier()
    return found


@call
def pipelines() -> Any:
    import socket

    from tools.hazards.__main__ import plain

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ends = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.write(ends[1], repr(plain(_pipeline(1, port))).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(ends[1])
    first = _pipeline(0, port)
    with os.fdopen(ends[0]) as file:
        second = file.read()
    return first, second, os.waitpid(child, 0)[1]
