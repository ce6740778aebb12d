"""The process group: made, used for text and barriers, and taken down without ever waiting for a rank that is gone."""

import contextlib
import os
from collections.abc import Sequence

from trainer.errors import UserError
from trainer.launch.child import launch_folder
from trainer.launch.detect import LOCAL_BUILD, World

TYPE_CHECKING = False
if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in its __all__

    from trainer.launch.agreement import Meeting
    from trainer.launch.facts import Fact

SHUTDOWN_SECONDS = 10.0

_meeting: "Meeting | None" = None


def init(world: World, device: str, backend: str, timeout_seconds: float, facts: "Sequence[Fact]" = ()) -> None:
    """Make the default process group of a world of more than one rank.

    `device`: cpu, cuda or cuda:N (N: the local rank unless given). `backend`: gloo, nccl, or auto (nccl on cuda, gloo
    on cpu). Collectives raise after `timeout_seconds`. On one machine only the loopback interface is used, unless the
    user has chosen one. `facts`: what all ranks must share beyond the build and the environment. Raises UserError when
    the ranks do not come together, belong to several jobs, or do not share all of that.
    """
    if world.world_size == 1:
        return
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    from trainer.launch.store import open_store

    if world.one_machine:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    on_cuda = torch.device(device).type == "cuda"
    if backend == "auto":
        backend = "nccl" if on_cuda else "gloo"
    device_id = None
    if backend == "nccl":
        if not on_cuda:
            raise UserError(
                f"nccl needs cuda and run.device is {device}", "Set parallel.backend to gloo, or to auto.", 2
            )
        given = torch.device(device).index
        device_id = torch.device("cuda", world.local_rank if given is None else given)
        torch.cuda.set_device(device_id)
    try:
        store = open_store(world, timeout_seconds)
        prefix = _agree(store, world, timeout_seconds, facts)
        dist.init_process_group(
            backend,
            timeout=timedelta(seconds=timeout_seconds),
            device_id=device_id,
            store=dist.PrefixStore(f"{prefix}default_pg", store),  # type: ignore[attr-defined]  # as above
            rank=world.rank,
            world_size=world.world_size,
        )
    except (RuntimeError, ValueError, OSError) as error:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UserError(
            f"on host {os.uname().nodename} the {world.world_size} ranks did not come together "
            f"({backend}, rank {world.rank} waited up to {timeout_seconds:g} s): {said}",
            "Look first at ranks that have failed or are missing; if some only start late, raise --fault.timeout.",
        ) from error


def _agree(store: "Store", world: World, timeout_seconds: float, facts: "Sequence[Fact]") -> str:
    """Compares what this rank runs with the others; the prefix of this start of the ranks in the store."""
    global _meeting
    from trainer.launch import agreement
    from trainer.launch.facts import environment, own_build, own_rank
    from trainer.launch.store import address, held_by_agent

    mine = [own_build().fact(), *environment(), *facts]
    if world.launcher == "local":
        agreement.require_build_of_parent(world.rank, own_build(), os.environ[LOCAL_BUILD])
        agreement.require_same_in_folder(launch_folder(), "run", own_rank(world.rank, world.world_size), mine)
        return ""
    me = own_rank(world.rank, world.world_size)
    meeting = agreement.meet(store, me, address(), timeout_seconds, held_by_agent())
    _meeting = agreement.require_same(meeting, "run", mine, timeout_seconds)
    return _meeting.prefix


def require_same(world: World, topic: str, facts: "Sequence[Fact]", timeout_seconds: float) -> None:
    """Return when all ranks of the process group have come here with the same facts; UserError that tells of the
    difference. Without a process group: at once."""
    if world.world_size == 1 or not _ready():
        return
    from trainer.launch import agreement
    from trainer.launch.facts import own_rank

    try:
        if world.launcher == "local":
            agreement.require_same_in_folder(launch_folder(), topic, own_rank(world.rank, world.world_size), facts)
        elif _meeting is not None:
            agreement.require_same(_meeting, topic, facts, timeout_seconds)
    except RuntimeError as error:
        raise UserError(
            f"rank {world.rank} could not compare its {topic} with the other ranks: {error}",
            "Look first at ranks that have failed; if some are only slower, raise --fault.timeout.",
        ) from error


def agree(world: World, timeout_seconds: float) -> None:
    """Before a program of the user's own makes the process group: UserError where the ranks do not run the same build.

    Only under a torchrun that holds the store; else rank 0 would have to, at the port that the program will want.
    """
    from trainer.launch.store import held_by_agent, open_store

    if world.world_size == 1 or not held_by_agent():
        return
    try:
        _agree(open_store(world, timeout_seconds), world, timeout_seconds, ())
    except (RuntimeError, OSError) as error:
        raise UserError(f"the ranks did not come together: {error}", "Look first at ranks that have failed.") from error


def barrier() -> None:
    """Returns when all ranks have come here. Without a process group: at once."""
    import torch.distributed as dist

    if _ready():
        dist.barrier()


def broadcast_text(text: str, source: int = 0) -> str:
    """The text of rank `source`, on every rank. Without a process group: `text`."""
    if not _ready():
        return text
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    mine = text.encode(errors="surrogatepass") if dist.get_rank() == source else b""
    length = torch.tensor([len(mine)], dtype=torch.int64, device=device)
    dist.broadcast(length, source)
    data = torch.zeros(int(length.item()), dtype=torch.uint8, device=device)
    if mine:
        data.copy_(torch.frombuffer(bytearray(mine), dtype=torch.uint8))
    if data.numel():
        dist.broadcast(data, source)
    return bytes(data.cpu().tolist()).decode(errors="surrogatepass")


def shutdown(ok: bool) -> None:
    """Takes the process group down after a good end, within 10 s. After a failure it does nothing: the other side may
    be gone, and a teardown would wait for it; leave with `child.leave`."""
    if not ok or not _ready():
        return
    import threading

    thread = threading.Thread(target=_take_down, name="shutdown of the process group", daemon=True)
    thread.start()
    thread.join(SHUTDOWN_SECONDS)


def _take_down() -> None:
    import torch.distributed as dist

    # everything is saved: a rank that is gone here fails in its own name, not in ours
    with contextlib.suppress(RuntimeError):
        dist.barrier()  # a rank that closes first would cut off the last message of a slower one
        dist.destroy_process_group()


def _ready() -> bool:
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()


def same_text(text: str) -> bool:
    """Whether it is the same on all ranks. Collective."""
    same = broadcast_text(text) == text
    if not _ready():
        return same
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    found = torch.tensor(int(same), device=device)
    dist.all_reduce(found, dist.ReduceOp.MIN)
    return bool(found.item())
