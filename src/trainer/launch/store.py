"""The store at which ranks meet, opened in bounded time whatever listens at its address."""

import contextlib
import datetime
import os
import threading
import time

from trainer.errors import UserError
from trainer.launch import listener
from trainer.launch.agreement import GENERATION
from trainer.launch.child import meeting_place
from trainer.launch.detect import World
from trainer.launch.facts import Rank, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in its __all__

HOLDER_SECONDS = 2.0
PAUSES = (0.01, 0.5)  # seconds between two looks: the first, and the longest
LATE = (
    "Start every rank of the run, with the same MASTER_ADDR and MASTER_PORT; raise --fault.timeout if some start late."
)
OTHER_PORT = "Set MASTER_PORT to a port that nothing else uses, the same for all ranks of the run."


def address() -> str:
    """MASTER_ADDR and MASTER_PORT, for messages."""
    return f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"


def held_by_agent() -> bool:
    """Whether torchrun, or our own parent of `exec`, holds the store; else rank 0 does."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def open_store(world: World, timeout_seconds: float) -> "Store":
    """The store that all ranks see. UserError after `timeout_seconds`, or sooner, where rank 0's can't be reached or
    opened."""
    if world.launcher == "local":
        return _rendezvous(world, timeout_seconds)
    deadline = time.monotonic() + timeout_seconds
    if world.rank == 0 and not held_by_agent():
        port, host = _place()[1], os.uname().nodename
        if listener.in_use(port):
            raise UserError(
                f"port {port}, where the ranks should meet, can't be opened on {host}: {_holder()}", OTHER_PORT
            )
    else:
        _await_listener(timeout_seconds, deadline)
    made: list[Store] = []
    failed: list[Exception] = []

    def make() -> None:
        try:
            made.append(_rendezvous(world, timeout_seconds))
        except Exception as error:
            failed.append(error)

    import torch.distributed.rendezvous  # noqa: F401  # not in the thread

    thread = threading.Thread(target=make, name="rendezvous", daemon=True)
    thread.start()
    # torch's own error comes a second late, and says how many ranks have come
    thread.join(max(0.0, deadline - time.monotonic()) + (HOLDER_SECONDS if world.rank == 0 else 0.0))
    if made:
        return made[0]
    cause = failed[0] if failed else None
    raise _explained(world, timeout_seconds, str(cause or "")) from cause


def _rendezvous(world: World, timeout_seconds: float) -> "Store":
    from torch.distributed.rendezvous import rendezvous

    timeout = datetime.timedelta(seconds=timeout_seconds)
    store: Store
    store, _, _ = next(rendezvous(meeting_place(world), world.rank, world.world_size, timeout=timeout))
    store.set_timeout(timeout)
    return store


def _await_listener(timeout_seconds: float, deadline: float) -> None:
    """Returns when something listens where rank 0 should; UserError when it can't be rank 0, or nothing comes."""
    pause, longest = PAUSES
    while True:
        found = listener.look(*_place())
        late = time.monotonic() >= deadline
        if found.never or (late and not found.answers):
            raise _not_found(timeout_seconds, found)
        if found.answers:
            return
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(2 * pause, longest)


def _place() -> tuple[str, int]:
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def _explained(world: World, timeout_seconds: float, said: str) -> UserError:
    """Why the store can't be had, from what torch says and a look at its address."""
    if world.rank != 0 or held_by_agent():
        return _not_found(timeout_seconds, listener.look(*_place()))
    line = next((line.strip() for line in said.splitlines() if line.strip()), "no answer")
    return UserError(
        f"waited {timeout_seconds:g} s on {os.uname().nodename} at {address()} for the other ranks of "
        f"{world.world_size}: {line}",
        LATE,
    )


def _not_found(timeout_seconds: float, found: listener.Found) -> UserError:
    if "can't be resolved" in found.what:
        fix = "Set MASTER_ADDR to the name or address of rank 0's host."
    else:
        fix = OTHER_PORT if found.never or "no rank" in found.what else LATE
    return UserError(
        f"waited up to {timeout_seconds:g} s on {os.uname().nodename} for rank 0 at {address()}: {found.what}",
        fix,
    )


def _holder() -> str:
    """Whose store listens at the port that this rank 0 wants: that of another job's ranks, or something else."""
    port = _place()[1]
    seen = listener.look("127.0.0.1", port)
    if seen.what != listener.STORE:
        return seen.what if seen.answers else "another program listens there"
    found: list[Rank] = []

    def ask() -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but not in its __all__

        timeout = datetime.timedelta(seconds=HOLDER_SECONDS)
        with contextlib.suppress(RuntimeError, ValueError):
            store = TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
            found.append(loads(store.get(store.get(GENERATION).decode() + "first"))[0])

    thread = threading.Thread(target=ask, name="whose store", daemon=True)
    thread.start()
    thread.join(2 * HOLDER_SECONDS)
    if not found:
        return "the ranks of another job meet there"
    job = next((f", {name}={value}" for name, value in found[0].job.items()), "")
    return f"two jobs meet there; {found[0].shown()} of another job holds it (WORLD_SIZE={found[0].world_size}{job})"
