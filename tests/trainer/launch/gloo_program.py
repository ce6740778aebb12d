"""A rank that adds over gloo until the end or a fault of rank 1 at item 3: gloo_program.py FAULT TIMEOUT."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from trainer.errors import UserError
from trainer.launch import child, comm
from trainer.launch.detect import World, detect

ITEMS = 6


def main() -> int:
    """Prints what was broadcast and the addresses that this process listens on, then goes through the items."""
    world = detect(os.environ)
    child.start_child(world)
    torch.set_num_threads(1)
    try:
        wait_for_the_others(world)
        comm.init(world, "cpu", "auto", float(sys.argv[2]))
        text = comm.broadcast_text(f"grüße from rank {world.rank}", source=1)
        assert comm.broadcast_text("") == ""
        comm.barrier()
        os.write(1, f"rank {world.rank}: {text}; listens on {sorted(listening())}\n".encode())  # one write, one line
        loop(world, sys.argv[1])
        comm.shutdown(ok=True)
        assert not dist.is_initialized()
        child.mark_done(world)
        return 0
    except BaseException as error:
        child.report_failure(world, error)
        comm.shutdown(ok=False)
        child.leave(error.status if isinstance(error, UserError) else 1)


def wait_for_the_others(world: World) -> None:
    """Imports take seconds, unlike on each rank: a short timeout is for what comes after them."""
    if world.launcher != "local":
        return
    folder = Path(os.environ["TRAINER_LAUNCH_DIR"])
    (folder / f"imported-{world.rank}").touch()
    while len(list(folder.glob("imported-*"))) < world.world_size:
        time.sleep(0.01)


def loop(world: World, fault: str) -> None:
    """A sum over the ranks for each item."""
    for item in range(ITEMS):
        if world.rank == 1 and item == 3:
            fail(fault, item)
        total = torch.tensor([float(world.rank)])
        dist.all_reduce(total)
        assert total.item() == sum(range(world.world_size))


def fail(fault: str, item: int) -> None:
    """The ways in which a rank's data code has failed."""
    if fault == "raise":
        raise RuntimeError(f"planned fault at item {item}")
    if fault == "kill-once" and os.environ["TRAINER_RESTARTS"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "sleep":
        time.sleep(1000)


def listening() -> set[str]:
    """Hexadecimal IPv4 addresses and IPv6 addresses that this process has listening sockets on."""
    inodes = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:
            continue
        inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].split(":")[0])
    return found


if __name__ == "__main__":
    sys.exit(main())
