"""A program of the user's own under the fast start: alone in this process, or as one of several ranks."""

import os
import signal
import sys

from trainer import start_policy, startup
from trainer.errors import UserError
from trainer.imports import PARENT, why_not_forked
from trainer.launch.detect import LOCAL_BUILD, World, detect
from trainer.launch.stop import INTERRUPTED, SIGNALS
from trainer.leaving import exit_status
from trainer.program import Program
from trainer.schema import Start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.layers import Note

AGREE_SECONDS = 600.0


def load(program: Program, start: Start, world: World) -> "list[Note]":
    """Puts the layers on and imports what the program will import first; the layers' notes."""
    startup.begin()
    notes = start_policy.put_on(start, start_policy.doubt_of_program(start), why_not_forked(world))
    startup.mark("layers")
    startup.time_shared_objects(True)
    program.import_first()
    startup.mark("imports")
    startup.time_shared_objects(False)
    startup.take_off()
    return notes


def load_for_ranks(program: Program, start: Start) -> "list[Note]":
    """The same in a process that ranks are forked from."""
    startup.keep_origin()
    notes = load(program, start, PARENT)
    import torch.distributed  # noqa: F401  # for the store, and by every rank

    startup.settle()
    startup.mark("imports of ranks")
    return notes


def alone(program: Program, start: Start, world: World) -> int:
    """Runs the program in this process, from its imports to its end; its exit status. An error is shown as Python shows
    it."""
    notes = load(program, start, world)
    if start.report:
        _show(notes, world)
    if world.launcher == "torchrun":
        from trainer.launch import comm

        comm.agree(world, AGREE_SECONDS)
    try:
        program.run()
    except SystemExit as leaving:
        status = exit_status(leaving)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals.get("__name__") != "__main__":
            trace = trace.tb_next  # the frames that led here are ours
        sys.excepthook(type(error), error.with_traceback(trace or error.__traceback__), trace)
        status = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    else:
        status = 0
    if status == 0:
        _record(start, world)
    return status


def rank(program: Program, start: Start, max_restarts: int, notes: "list[Note]") -> int:
    """One rank of several that were started here, from after its imports to its end."""
    from trainer.launch import child, meeting
    from trainer.launch.agreement import require_build_of_parent
    from trainer.launch.facts import own_build

    world = detect(os.environ)
    child.start_child(world)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    meeting.publish(max_restarts)
    if start.report and world.rank == 0:
        _show(notes, world)
    try:
        require_build_of_parent(world.rank, own_build(), os.environ[LOCAL_BUILD])
        program.run()
        status = 0
    except BaseException as error:
        leaving = error if isinstance(error, SystemExit) else None
        status = 1 if leaving is None else exit_status(leaving)
        if status:
            told = UserError(f"the program exited with status {status}", "See its messages above.", status)
            child.report_failure(world, error if leaving is None else told)
            child.leave(status)
    _record(start, world)
    child.mark_done(world)
    return status


def _record(start: Start, world: World) -> None:
    if world.rank == 0 and "snapshot" in start.layers:
        startup.record_snapshot()


def _show(notes: "list[Note]", world: World) -> None:
    from trainer import start_report

    report = start_report.make(world, startup.phases(), notes)
    print("\n".join(start_report.table([{**report, "world_size": 1}], "the program's first line")), file=sys.stderr)
