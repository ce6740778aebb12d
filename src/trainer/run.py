"""Composition root: config -> data -> model -> parallelize -> optimizer -> checkpoint -> loop -> summary."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from trainer import doubts, finished, imports, run_data, startup
from trainer import folder as run_folder
from trainer.config import Resolved, to_toml
from trainer.errors import UserError
from trainer.launch import comm
from trainer.launch.cores import usable_cores
from trainer.launch.detect import World
from trainer.launch.stop import StopRequest
from trainer.launch.temporary import workers_folder
from trainer.mesh import plan_layout
from trainer.needs import need
from trainer.refuse import refuse_early
from trainer.schema import Config
from trainer.surroundings import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer.session import Training
    from trainer_boot.layers import Note

STOPPED = 75
BEFORE = ("stopped before training began", "Give the same command again to start.")


def run(resolved: Resolved, world: World, stop: StopRequest, notes: "list[Note] | None" = None) -> int:
    """Trains as the configuration says, as one rank of `world`. Returns the exit status: 0 done, 75 stopped.

    `notes`: those of the layers, in a rank that was forked after everything was imported.
    """
    if notes is None:
        startup.begin()
    else:
        startup.put_on_again(resolved.config.start.layers)
    try:
        return startup.roomy(_run, resolved, world, stop, notes)
    finally:
        startup.take_off()  # an error may have come before the loop


def _run(resolved: Resolved, world: World, stop: StopRequest, notes: "list[Note] | None") -> int:
    config = resolved.config
    folder = Path(config.run.folder)
    plan = refuse_early(config, world.world_size)
    need("torch", "numpy")
    run_folder.make(folder, config.run.resume)
    startup.mark("checks")
    with run_folder.locked(folder) if world.rank == 0 else contextlib.nullcontext():
        found, place = prepare(config, folder, stop) if world.rank == 0 else (None, "")
        startup.mark("data")
        notes = imports.bring_in(config, world) if notes is None else notes
        from trainer import session
        from trainer.data.datasets import open_data
        from trainer.start_report import Reporter
        from trainer.summary import finish

        device = session.set_up(config, world)
        startup.mark("device")
        workers = workers_folder(world) if config.data.workers else contextlib.nullcontext()
        with workers, session.process_group(config, world, device, resolved.origins):
            startup.mark("process group")
            if world.launcher not in ("none", "local"):  # else it was known before ranks were started
                said = comm.broadcast_text(finished.message(config) if world.rank == 0 else "")
                if said:
                    if world.rank == 0:
                        tell(said)
                    return 0
            # rank 0 has prepared the data, and verified it, before it came here
            data = open_data(config, folder, prepare=False, place=comm.broadcast_text(place), tell=world.rank == 0)
            startup.mark("data opened")
            with leaving_at_once(stop, *BEFORE):
                training = session.assemble(config, world, device, data, plan, found, stop)
            if world.rank == 0:
                from trainer import header

                for line in header.lines(config, training, plan_layout(config, world.world_size)):
                    training.reporters.progress.note(line)
                cores = usable_cores()
                for doubt in [*doubts.of_settings(config, cores), *doubts.of_data(config, data, training.loop.total)]:
                    print(f"warning: {doubt}", file=sys.stderr)
                run_folder.write_run_file(folder, to_toml(resolved))
                run_data.note(config, folder, data)
            startup.take_off()
            startup.mark("loop")
            training.loop.on_first_update = Reporter(world, folder, notes, config.start)
            complete = training.loop.run()
            if complete:
                with at_once_where_saved(training, stop, folder):
                    finish(config, training, folder)
                if world.rank == 0:
                    finished.note(config, folder, training.state.step)
                if world.rank == 0 and "snapshot" in config.start.layers:
                    record_snapshot(config.start.report)
            training.close()
    if complete:
        return 0
    if world.rank == 0:
        tell(f"stopped at step {training.state.step}, saved in {folder}; the same command goes on from there")
    return STOPPED


def record_snapshot(show: bool) -> None:
    """Makes the next start faster, where nothing has yet; the run is complete whether it can or not."""
    note = startup.record_snapshot()
    if show and (note.get("made") or note["why"]):
        print(f"snapshot for the next start: {note['why'] or note['path']}", file=sys.stderr)


def prepare(config: Config, folder: Path, stop: StopRequest) -> tuple[Path | None, str]:
    """What rank 0 does before torch is imported, so that a missing file is told in milliseconds: finds the checkpoint
    to go on from, and prepares the data, however long that takes. The checkpoint, and where the data lies."""
    from trainer import newest

    place = ""
    with leaving_at_once(stop, *BEFORE):
        found = newest.find(config)
        if config.data.images:
            from trainer.data import images

            images.note(folder, images.find_images(config.data))
        elif not config.data.dataset:
            place = run_data.prepare_files(config, folder, found)
    return found, place


def at_once_where_saved(
    training: "Training", stop: StopRequest, folder: Path
) -> contextlib.AbstractContextManager[None]:
    """Return what surrounds the end of a complete run: a request to stop ends it at once, where there is something left
    to do and the model is saved. Collective."""
    config = training.loop.config
    if training.loop.saved_step != training.state.step:
        return contextlib.nullcontext()  # checkpoint.final is false: nothing but the evaluation is left of it
    if training.data.validation is None and not config.eval.sample_tokens:
        return contextlib.nullcontext()
    comm.barrier()  # rank 0 commits the checkpoint last; a rank that left before would take the run, and it, along
    return leaving_at_once(
        stop,
        f"stopped before the final evaluation was complete; the trained model is saved in {folder}",
        f"Run `trainer eval {folder}`, or give the same command again.",
    )


@contextlib.contextmanager
def leaving_at_once(stop: StopRequest, what: str, fix: str) -> Iterator[None]:
    """Where there is nothing to lose, a request to stop ends the block at once, as a UserError with status 75."""
    try:
        with stop.at_once():
            yield
    except KeyboardInterrupt:
        raise UserError(what, fix, STOPPED) from None
