"""What a rank owes to the process that started it: to end with it, to say that it is done, or why it failed."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from trainer.launch import failure, scratch
from trainer.launch.detect import LOCAL_FOLDER, LOCAL_PARENT, World

PR_SET_PDEATHSIG = 1
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
# torchrun orders failures by whole seconds: one second later than the cause is enough to come after it
SETTLE_SECONDS = 1.0


def start_child(world: World) -> None:
    """Ties this rank's life to its parent's, if that is our own: when the parent is killed the rank gets SIGTERM, saves
    and stops. Stop signals are held back until `StopRequest.install`, so that none is lost while the rank starts."""
    if world.launcher != "local":
        return
    with contextlib.suppress(FileNotFoundError):  # its folder goes with the parent
        scratch.join(launch_folder())
    die_with_parent(signal.SIGTERM)
    if _orphaned():  # the parent was gone before the line above
        leave(1)


def mark_done(world: World) -> None:
    """Says that this rank has nothing left to do, whether trained or stopped on request: call it after `comm.shutdown`,
    before leaving with 0 or 75. A rank that leaves without it counts as failed."""
    if world.launcher != "local":
        return
    with contextlib.suppress(FileNotFoundError):
        scratch.done_file(launch_folder(), world.rank).touch()
    die_with_parent(signal.SIGKILL)  # nothing left to save
    _clean_up_as_orphan()


def report_failure(world: World, error: BaseException) -> None:
    """Leaves word of `error` where the launcher looks for it: our parent, or torchrun. Prints nothing unless that is
    impossible: the launcher shows one rank's error once. Other launchers look nowhere; there the rank prints itself."""
    told = failure.from_error(world.rank, error)
    try:
        if world.launcher == "local":
            told.write(scratch.failure_file(launch_folder(), world.rank))
        elif world.launcher == "torchrun" and os.environ.get(ERROR_FILE):
            _write_for_torchrun(told, os.environ[ERROR_FILE])
    except OSError as problem:
        lines = [*failure.show(told, []), f"(rank {world.rank} could not leave word of it: {problem})"]
        print("\n".join(lines), file=sys.stderr)


def prints_own_errors(world: World) -> bool:
    """Whether a failing rank should print its error itself: nobody who started it does."""
    if world.launcher == "torchrun":
        return not os.environ.get(ERROR_FILE)
    return world.launcher != "local"


def meeting_place(world: World) -> str:
    """Where the ranks meet: the `init_method` of torch.distributed."""
    return f"file://{scratch.rendezvous_file(launch_folder())}" if world.launcher == "local" else "env://"


def leave(status: int) -> NoReturn:
    """Ends the process at once: flushes what was printed, nothing else. A tidy exit would tear down collectives whose
    other side is gone, and wait for ever."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None without a descriptor
            stream.flush()
    with contextlib.suppress(OSError):
        _clean_up_as_orphan()
    os._exit(status)


def die_with_parent(number: signal.Signals) -> None:
    """From now on the kernel sends this process the signal when its parent ends."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def launch_folder() -> Path:
    """The folder of this start of the ranks; `--nproc` launches only."""
    return Path(os.environ[LOCAL_FOLDER])


def _orphaned() -> bool:
    return os.environ.get(LOCAL_PARENT, "") not in ("", str(os.getppid()))


def _clean_up_as_orphan() -> None:
    """Removes the launch folder if the parent that would do so is gone and no other rank is left."""
    if _orphaned():
        scratch.remove_if_last(launch_folder())


def _write_for_torchrun(told: failure.Failure, path: str) -> None:
    """The format of torch.distributed.elastic.multiprocessing.errors.ErrorHandler; torchrun shows `py_callstack`."""
    import json

    if told.secondary:
        time.sleep(SETTLE_SECONDS)
    text = "\n".join(failure.show(told, []))
    seconds = str(int(time.time()))
    message = {"message": told.line(), "extraInfo": {"py_callstack": text, "timestamp": seconds}}
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump({"message": message}, file)
