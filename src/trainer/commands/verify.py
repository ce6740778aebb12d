"""`trainer verify`: does the run give the numbers of one process when it is cut as the run file says?"""

import json
import os
import sys
from typing import Any

from trainer.arguments import Arguments, real, split, whole
from trainer.commands.train import resolve_run
from trainer.config import Resolved
from trainer.errors import UserError

HELP = """usage: trainer verify [RUN.toml] [--section.key VALUE ...] [--nproc N] [--updates K] [--tolerance T] [--json]

Trains the first updates of a run twice, on one rank and on N ranks as [parallel] says, with the run's own model, loss,
data and optimizer, and compares losses, gradient norms, the gradient of every parameter and the weights. Batch norms
take their statistics over the same groups of samples in both. Names the worst difference and where it is, and what in
the model or data is the reason, where that can be found. Dropout is off; precision.compute auto means fp64 here. Of the
run folder only prepared data is touched.

  --nproc N        ranks on this machine (default: the least that [parallel] asks for, two at least)
  --updates K      updates to compare (default 3)
  --tolerance T    largest relative difference that counts as equal (fp64 1e-10, fp32 1e-5, bf16 2e-2, fp16 1e-2);
                   0: only the same bits are
  --json           the whole comparison as JSON, with every parameter
  --into FILE      the same into a file

examples:
  trainer verify run.toml --nproc 4 --parallel.strategy full
  trainer verify run.toml --precision.compute bf16 --updates 5
  torchrun --nproc-per-node 2 trainer.pyz verify run.toml

exit status: 0 equal; 1 not; 2 usage or run file; 3 environment"""

DEFAULT_TOLERANCE = -1.0  # that of the number format
OWN = {"nproc": True, "updates": True, "tolerance": True, "json": False, "into": True}


def run(arguments: list[str]) -> int:
    """Starts the ranks, or is one."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    given = split(arguments, OWN, 1, "verify")
    whole(given.flags, "updates", 3, 1)
    real(given.flags, "tolerance", DEFAULT_TOLERANCE)
    resolved = resolve_run(given.places, given.settings)
    from trainer.launch.detect import detect

    world = detect(os.environ)
    if world.launcher == "none":
        nproc = whole(given.flags, "nproc", _least(resolved), 1)
        if nproc > 1:
            return _start_ranks(resolved, arguments, nproc, given)
    elif world.launcher != "local" and "nproc" in given.flags:
        raise UserError(
            f"--nproc was given to a rank that {world.launcher} has started: two launchers at once",
            "Remove --nproc.",
            2,
        )
    return _be_rank(resolved, given)


def _least(resolved: Resolved) -> int:
    parallel = resolved.config.parallel
    product = parallel.pipeline * parallel.context * parallel.tensor * max(1, parallel.shard)
    return max(2, product)


def _start_ranks(resolved: Resolved, arguments: list[str], nproc: int, given: Arguments) -> int:
    """The parent of the ranks; shows what rank 0 found."""
    import tempfile
    from pathlib import Path

    from trainer import startup
    from trainer.launch.local import run_ranks
    from trainer.launch.starting import Spawner
    from trainer.needs import need
    from trainer.refuse import refuse_early

    refuse_early(resolved.config, nproc)
    need("torch", "numpy")
    with tempfile.TemporaryDirectory(prefix="trainer-verify-") as folder:
        result = Path(folder, "result.json")
        command = [*startup.entry_command(), "verify", *arguments, "--into", str(result)]
        status = run_ranks(Spawner(command), nproc, max_restarts=0)
        if status or not result.exists():
            return status or 1
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return _show(found, given)


def _be_rank(resolved: Resolved, given: Arguments) -> int:
    """One rank. Under a parent of ours it says what it found in a file, and is done; else by its status."""
    from trainer.launch import child
    from trainer.launch.detect import detect

    world = detect(os.environ)
    child.start_child(world)
    if world.launcher == "local":
        import signal

        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # nothing to be saved: a request to stop may end it
    try:
        from trainer.needs import need
        from trainer.refuse import refuse_early

        plan = refuse_early(resolved.config, world.world_size)
        need("torch", "numpy")
        notes = _prepared(resolved)
        from trainer.verification.rank import verdict

        updates = whole(given.flags, "updates", 3, 1)
        tolerance = real(given.flags, "tolerance", DEFAULT_TOLERANCE)
        found = verdict(resolved.config, world, plan, updates=updates, tolerance=tolerance, notes=notes)
        child.mark_done(world)
    except BaseException as error:
        if world.launcher == "none":
            raise
        child.report_failure(world, error)
        if child.prints_own_errors(world):
            print(f"error: rank {world.rank}: {error}", file=sys.stderr)
        child.leave(error.status if isinstance(error, UserError) else 1)
    if world.launcher == "local":
        if found is not None:
            _write(found, given)
        return 0
    return _show(found, given) if found is not None else 0


def _prepared(resolved: Resolved) -> list[str]:
    """Changes of the configuration for the comparison, and what to say of them."""
    config, notes = resolved.config, []
    if config.model.dropout:
        notes.append(f"model.dropout {config.model.dropout:g} is 0 for the comparison")
        config.model.dropout = 0.0
    if config.precision.compute == "auto":
        config.precision.compute = "fp64"
    return notes


def _write(found: dict[str, Any], given: Arguments) -> None:
    from pathlib import Path

    if "into" in given.flags:
        Path(given.flags["into"]).write_text(json.dumps(found) + "\n", encoding="utf-8")


def _show(found: dict[str, Any], given: Arguments) -> int:
    """Prints the comparison; the exit status that it stands for."""
    _write(found, given)
    if "json" in given.flags:
        print(json.dumps(found))
    else:
        from trainer.verification.text import lines

        print("\n".join(lines(found)))
    return 0 if found["equal"] else 1
