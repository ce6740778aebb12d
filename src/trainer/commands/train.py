"""`trainer train`: the main job."""

import os
import sys

from trainer.arguments import split
from trainer.config import Resolved, resolve
from trainer.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer.launch.starting import Starter
    from trainer.schema import Config
    from trainer_boot.layers import Note

HELP = """usage: trainer train [RUN.toml] [--section.key VALUE ...] [--nproc N]

Trains as the run file says. Without a run file: a small byte-level GPT on the source text of this Python's own
standard library, about a minute on two CPU cores. A run that was stopped or killed goes on from its newest checkpoint
when the same command is given again; a finished run is left alone.

  --nproc N|auto   ranks on this machine (default 1; without a run file auto: a rank a GPU, else two on two cores)
  --section.key    any setting of the run file; `trainer check` lists them all

examples:
  trainer train
  trainer train run.toml --nproc 2
  trainer train run.toml --run.steps 1000 --optim.lr 3e-4 --run.folder runs/second
  torchrun --nproc-per-node 2 trainer.pyz train run.toml

exit status: 0 done; 75 stopped on request, checkpoint saved; 2 usage or run file; 3 environment; 1 other errors"""

DEFAULT_NAME = "the embedded default run"


def run(arguments: list[str]) -> int:
    """Starts ranks, or is one."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    given = split(arguments, {"nproc": True}, 1, "train")
    from trainer.launch.detect import detect

    world = detect(os.environ)
    resolved = _of_parent() if world.launcher == "local" else resolve_run(given.places, given.settings)
    if resolved.config.start.calls:
        from trainer import start_calls, startup

        start_calls.trace([*startup.entry_command(), "train", *arguments])
    from trainer.launch import foreign
    from trainer.launch.cores import ranks_here

    nproc = ranks_here(given.flags.get("nproc", "1" if given.places else "auto"))
    foreign.refuse_task(os.environ, world)
    if world.launcher == "none" and _is_finished(resolved.config):
        return 0
    if world.launcher == "none" and nproc > 1:
        return _start_ranks(resolved, arguments, nproc)
    if world.launcher in ("torchrun", "env") and "nproc" in given.flags:
        raise UserError(
            f"--nproc was given to a rank that {world.launcher} has started: two launchers at once",
            "Remove --nproc.",
            2,
        )
    return _be_rank(resolved)


def _is_finished(config: "Config") -> bool:
    """Return whether the run has nothing left to do, and say so."""
    from trainer import folder

    if not os.path.lexists(f"{config.run.folder}/{folder.FINISHED_FILE}"):
        return False
    from trainer import finished

    said = finished.message(config)
    if said:
        print(said)
    return bool(said)


def _of_parent() -> Resolved:
    """The settings of the process that started this rank, whatever the run file has become since."""
    from trainer import handover
    from trainer.launch import child, scratch

    return handover.from_text(scratch.settings(child.launch_folder()))


def resolve_run(places: list[str], settings: list[tuple[str, str]]) -> Resolved:
    """The run file, or the embedded default where none is given."""
    if places:
        return resolve(places[0], settings, os.environ)
    from importlib import resources  # two dozen modules that a start from a run file does without

    text = resources.files("trainer").joinpath("default_run.toml").read_text(encoding="utf-8")
    return resolve(DEFAULT_NAME, settings, os.environ, text)


def _start_ranks(resolved: Resolved, arguments: list[str], nproc: int) -> int:
    """The parent of the ranks: refuses what can be refused without torch, then only watches."""
    from pathlib import Path

    from trainer import folder, handover
    from trainer.launch.local import run_ranks
    from trainer.needs import need
    from trainer.refuse import refuse_early

    refuse_early(resolved.config, nproc)
    need("torch", "numpy")
    folder.make(Path(resolved.config.run.folder), resolved.config.run.resume)
    return run_ranks(
        _starter(resolved, arguments),
        nproc,
        max_restarts=resolved.config.fault.max_restarts,
        settings=handover.to_text(resolved),
    )


def _starter(resolved: Resolved, arguments: list[str]) -> "Starter":
    """How ranks are made: forked from this process, or each one a process of its own."""
    from trainer import startup
    from trainer.launch.starting import Spawner

    spawner = Spawner([*startup.entry_command(), "train", *arguments])
    if "fork" not in resolved.config.start.layers:
        return spawner
    from trainer import imports
    from trainer.launch.forking import Forker

    notes: list[Note] = []
    return Forker(
        load=lambda: notes.extend(startup.roomy(imports.bring_in_for_ranks, resolved.config)),
        rank=lambda: _be_rank(resolved, notes),
        otherwise=spawner,
    )


def _be_rank(resolved: Resolved, notes: "list[Note] | None" = None) -> int:
    """One rank, from here to its end. `notes`: as `trainer.run.run` has it."""
    from trainer.launch import child
    from trainer.launch.detect import detect
    from trainer.launch.stop import StopRequest

    world = detect(os.environ)
    child.start_child(world)
    stop = StopRequest(quiet=world.rank != 0)
    stop.install()
    try:
        from trainer.run import run as train

        status = train(resolved, world, stop, notes)
        child.mark_done(world)
        return status
    except BaseException as error:
        if world.launcher == "none":
            raise
        child.report_failure(world, error)
        if child.prints_own_errors(world):
            _print_own_error(world.rank, error)
        child.leave(error.status if isinstance(error, UserError) else 1)
    finally:
        stop.uninstall()


def _print_own_error(rank: int, error: BaseException) -> None:
    """Under a foreign launcher each rank speaks for itself."""
    from trainer.surroundings import explained

    error = explained(error) or error
    if not isinstance(error, UserError):
        import traceback

        traceback.print_exception(error)
    what = error.what if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    print(f"error: rank {rank}: {what}", file=sys.stderr)
    if isinstance(error, UserError) and error.fix:
        print(f"fix: {error.fix}", file=sys.stderr)
