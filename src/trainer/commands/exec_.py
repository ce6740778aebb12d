"""`trainer exec`: any program on torch, with the fast start and ranks forked on this machine."""

import os

from trainer.arguments import split, whole
from trainer.config import resolve
from trainer.errors import UserError
from trainer.schema import Start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer.launch.starting import Starter
    from trainer.program import Program
    from trainer_boot.layers import Note

HELP = """usage: trainer exec [--nproc N|auto] [--max-restarts K] [--start.key VALUE ...] PROGRAM.py [ARGUMENTS ...]
       trainer exec [...] -m MODULE [ARGUMENTS ...]

Runs a program of your own as Python would, with the fast start of this trainer: its first step comes sooner, its
results are the same bits. With --nproc it is the ranks of one machine, as torchrun would start them: RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR and their kind are set, and init_process_group() needs no arguments but the backend.

  --nproc N|auto     ranks on this machine (default 1; auto: a rank a GPU, else two on two cores)
  --max-restarts K   after a failed rank all are started again, up to K times (default 0)
  --start.layers ..  layers of the fast start, as `trainer check` lists them; --start.report true shows where time goes

Before ranks are forked, what the program's first lines import of torch and numpy is imported once for all.

examples:
  trainer exec train_my_model.py --epochs 3
  trainer exec --nproc 8 --max-restarts 3 train_my_model.py
  trainer exec --nproc 2 -m my_package.train
  torchrun --nproc-per-node 2 trainer.pyz exec train_my_model.py

exit status: the program's own; 2 usage; 3 environment; 130 interrupted, 143 terminated"""

FLAGS = {"nproc": True, "max-restarts": True}


def run(arguments: list[str]) -> int:
    """Runs the program here, or starts its ranks."""
    own, words = _divide(arguments)
    if "--help" in own or "-h" in own:
        print(HELP)
        return 0
    if not words:
        raise UserError("exec: no program is given", "Write trainer exec PROGRAM.py, or trainer exec -m MODULE.", 2)
    given = split(own, FLAGS, 0, "exec")
    others = [name for name, _ in given.settings if not name.startswith("start.")]
    if others:
        raise UserError(
            f"exec has no setting {others[0]}", "Use only settings of the start, such as --start.layers.", 2
        )
    # other variables may be the program's own
    ours = {name: value for name, value in os.environ.items() if name.startswith("TRAINER_START_")}
    start = resolve(None, given.settings, ours).config.start
    from trainer.launch.cores import ranks_here
    from trainer.launch.detect import detect
    from trainer.needs import need
    from trainer.program import Program
    from trainer.refuse import check_layers

    check_layers(start.layers)
    nproc = ranks_here(given.flags.get("nproc", "1"))
    restarts = whole(given.flags, "max-restarts", 0)
    need("torch")
    program = Program(words)
    world = detect(os.environ)
    if world.launcher in ("torchrun", "env") and "nproc" in given.flags:
        raise UserError(
            f"--nproc was given to a rank that {world.launcher} has started: two launchers at once",
            "Remove --nproc.",
            2,
        )
    if world.launcher == "none" and nproc > 1:
        return _start_ranks(program, start, arguments, nproc, restarts)
    from trainer import execution, startup

    if world.launcher == "local":
        return execution.rank(program, start, restarts, startup.roomy(execution.load, program, start, world))
    return startup.roomy(execution.alone, program, start, world)


def _divide(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Our own flags, and the words of the program: its path, or -m and its name, and what comes after."""
    rest = list(arguments)
    own: list[str] = []
    while rest and rest[0] != "-m" and rest[0].startswith("-"):
        own.append(rest.pop(0))
        takes_value = own[-1].startswith("--") and "=" not in own[-1] and own[-1] != "--help"
        if takes_value and rest:
            own.append(rest.pop(0))
    return own, rest


def _start_ranks(program: "Program", start: Start, arguments: list[str], nproc: int, restarts: int) -> int:
    """The parent of the ranks."""
    from trainer import execution, startup
    from trainer.launch.forking import Forker
    from trainer.launch.local import run_ranks
    from trainer.launch.meeting import Meeting
    from trainer.launch.starting import Spawner

    starter: Starter = Spawner([*startup.entry_command(), "exec", *arguments])
    forks = "fork" in start.layers
    if forks:
        notes: list[Note] = []
        starter = Forker(
            load=lambda: notes.extend(startup.roomy(execution.load_for_ranks, program, start)),
            rank=lambda: execution.rank(program, start, restarts, notes),
            otherwise=starter,
        )
    with Meeting(starter, served=forks) as meeting:
        status = run_ranks(meeting, nproc, max_restarts=restarts, trust_status=True)
    if status == 0 and forks and "snapshot" in start.layers:
        startup.record_snapshot()  # unless rank 0 has: a program may leave without coming back
    return status
