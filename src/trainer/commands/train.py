"""`trainer train`: the main job."""

import os
import sys

from trainer.arguments import split, whole
from trainer.config import Resolved, resolve
from trainer.errors import UserError

HELP = """usage: trainer train [RUN.toml] [--section.key VALUE ...] [--nproc N]

Trains as the run file says. Without a run file: a small byte-level GPT on the source text of this Python's own
standard library, about a minute on two CPU cores. A run that was stopped or killed goes on from its newest checkpoint
when the same command is given again.

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
    resolved = resolve_run(given.places, given.settings)
    nproc = _ranks(given.flags, default=not given.places)
    from trainer.launch.detect import detect

    world = detect(os.environ)
    if world.launcher == "none" and nproc > 1:
        return _start_ranks(resolved, arguments, nproc)
    if world.launcher in ("torchrun", "env") and "nproc" in given.flags:
        raise UserError(f"--nproc inside {world.launcher}: two launchers at once", "leave --nproc out", 2)
    return _be_rank(resolved)


def resolve_run(places: list[str], settings: list[tuple[str, str]]) -> Resolved:
    """The run file, or the embedded default where none is given."""
    if places:
        return resolve(places[0], settings, os.environ)
    from importlib import resources  # two dozen modules that a start from a run file does without

    text = resources.files("trainer").joinpath("default_run.toml").read_text(encoding="utf-8")
    return resolve(DEFAULT_NAME, settings, os.environ, text)


def _ranks(flags: dict[str, str], default: bool) -> int:
    text = flags.get("nproc", "auto" if default else "1")
    if text != "auto":
        return whole({"nproc": text}, "nproc", 1, 1)
    from trainer.launch.cores import usable_cores

    with os.scandir("/dev") as devices:
        cards = sum(device.name.startswith("nvidia") and device.name[6:].isdigit() for device in devices)
    return cards or min(2, usable_cores())


def _start_ranks(resolved: Resolved, arguments: list[str], nproc: int) -> int:
    """The parent of the ranks: refuses what can be refused without torch, then only watches."""
    from pathlib import Path

    from trainer import folder, startup
    from trainer.launch.local import run_ranks
    from trainer.needs import need
    from trainer.refuse import refuse_early

    refuse_early(resolved.config, nproc)
    need("torch", "numpy")
    folder.make(Path(resolved.config.run.folder), resolved.config.run.resume)
    command = [*startup.entry_command(), "train", *arguments]
    return run_ranks(command, nproc, max_restarts=resolved.config.fault.max_restarts)


def _be_rank(resolved: Resolved) -> int:
    from trainer.launch import child
    from trainer.launch.detect import detect
    from trainer.launch.stop import StopRequest

    world = detect(os.environ)
    child.start_child(world)
    stop = StopRequest(quiet=world.rank != 0)
    stop.install()
    try:
        from trainer.run import run as train

        status = train(resolved, world, stop)
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
    if not isinstance(error, UserError):
        import traceback

        traceback.print_exception(error)
    what = error.what if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    print(f"error: rank {rank}: {what}", file=sys.stderr)
    if isinstance(error, UserError) and error.fix:
        print(f"fix: {error.fix}", file=sys.stderr)
