"""Reads from the environment variables which launcher started this process, and as which rank."""

from collections.abc import Mapping
from typing import NamedTuple

from trainer.errors import UserError

# set by `local.run_ranks` for its ranks
LOCAL_FOLDER = "TRAINER_LAUNCH_DIR"
LOCAL_PARENT = "TRAINER_LAUNCH_PARENT"
LOCAL_BUILD = "TRAINER_LAUNCH_BUILD"
RESTARTS = "TRAINER_RESTARTS"

TORCHRUN_MARK = "TORCHELASTIC_RUN_ID"
LOOPBACK_NAMES = ("localhost", "::1", "ip6-localhost")


class World(NamedTuple):
    """The ranks of one run. `local_*` count within this machine; `launcher` is none, local, torchrun or env."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    launcher: str

    @property
    def one_machine(self) -> bool:
        """Whether all ranks run on this machine."""
        return self.local_world_size == self.world_size


def detect(environ: Mapping[str, str]) -> World:
    """The world that `environ` describes; one rank alone when no launcher left its variables.

    Raises UserError (status 2) that names the variable when they are incomplete or contradict each other.
    """
    for launcher in (_torchrun, _local, _by_hand):
        world = launcher(environ)
        if world is not None:
            return world
    return World(0, 0, 1, 1, "none")


def _torchrun(environ: Mapping[str, str]) -> World | None:
    # asked before _local: run_ranks clears this mark for its ranks, so a rank that has both was started by a torchrun
    # that runs inside one of our ranks
    if not environ.get(TORCHRUN_MARK):
        return None
    why = f"{TORCHRUN_MARK} is set, so torchrun started this process"
    fix = f"Start it with torchrun, or unset {TORCHRUN_MARK}."
    _require(environ, ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"), why, fix)
    _check_port(environ)
    return _world(environ, environ["LOCAL_RANK"], environ["LOCAL_WORLD_SIZE"], "torchrun")


def _local(environ: Mapping[str, str]) -> World | None:
    if not environ.get(LOCAL_FOLDER):
        return None
    why = f"{LOCAL_FOLDER} is set, so --nproc started this process"
    fix = f"Unset {LOCAL_FOLDER}; only --nproc sets it."
    _require(environ, ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", LOCAL_PARENT), why, fix)
    _number(environ, LOCAL_PARENT)
    return _world(environ, environ["LOCAL_RANK"], environ["LOCAL_WORLD_SIZE"], "local")


def _by_hand(environ: Mapping[str, str]) -> World | None:
    present = [name for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK") if environ.get(name)]
    if not present:
        return None
    fix = f"Unset {' and '.join(present)} to train alone, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."
    _require(environ, ("RANK", "WORLD_SIZE"), f"{present[0]} is set", fix)
    size = _number(environ, "WORLD_SIZE")
    if size > 1:
        _require(environ, ("MASTER_ADDR", "MASTER_PORT"), f"WORLD_SIZE is {size}", fix)
        _check_port(environ)
    local_rank, local_size = environ.get("LOCAL_RANK"), environ.get("LOCAL_WORLD_SIZE")
    if size == 1 or _is_loopback(environ["MASTER_ADDR"]):
        local_rank, local_size = local_rank or environ["RANK"], local_size or environ["WORLD_SIZE"]
    if not local_rank or not local_size:
        # one rank a machine or all on one? Guessing wrong puts two ranks on one GPU
        missing = "LOCAL_WORLD_SIZE" if local_rank else "LOCAL_RANK"
        raise UserError(
            f"RANK and WORLD_SIZE are set but {missing} is not, and MASTER_ADDR is not a loopback address",
            "Set LOCAL_RANK (this rank's number on its host) and LOCAL_WORLD_SIZE (ranks on its host).",
            2,
        )
    return _world(environ, local_rank, local_size, "env")


def _world(environ: Mapping[str, str], local_rank_text: str, local_size_text: str, launcher: str) -> World:
    values = {**environ, "LOCAL_RANK": local_rank_text, "LOCAL_WORLD_SIZE": local_size_text}
    rank, size = _number(values, "RANK"), _number(values, "WORLD_SIZE", 1)
    local_rank, local_size = _number(values, "LOCAL_RANK"), _number(values, "LOCAL_WORLD_SIZE", 1)
    contradictions = (
        (rank >= size, f"RANK is {rank} but WORLD_SIZE is {size}"),
        (local_size > size, f"LOCAL_WORLD_SIZE is {local_size} but WORLD_SIZE is {size}"),
        (local_rank >= local_size, f"LOCAL_RANK is {local_rank} but LOCAL_WORLD_SIZE is {local_size}"),
        (local_size == size and local_rank != rank,
         f"RANK is {rank} and LOCAL_RANK is {local_rank} though all {size} ranks are on one machine"),
    )  # fmt: skip
    for wrong, what in contradictions:
        if wrong:
            raise UserError(what, "Count ranks from 0, and unset variables that another launcher has left behind.", 2)
    return World(rank, local_rank, size, local_size, launcher)


def _require(environ: Mapping[str, str], names: tuple[str, ...], why: str, fix: str) -> None:
    for name in names:
        if not environ.get(name):
            raise UserError(f"{why}, but {name} is not set", fix, 2)


def _number(environ: Mapping[str, str], name: str, minimum: int = 0) -> int:
    text = environ[name]
    if not (text.isascii() and text.isdigit()) or int(text) < minimum:
        raise UserError(f"{name} is {text!r}", f"Set {name} to a whole number of at least {minimum}, or unset it.", 2)
    return int(text)


def _check_port(environ: Mapping[str, str]) -> None:
    if not 1 <= _number(environ, "MASTER_PORT") <= 65535:
        raise UserError(f"MASTER_PORT is {environ['MASTER_PORT']}", "Set MASTER_PORT to a port from 1 to 65535.", 2)


def _is_loopback(address: str) -> bool:
    return address in LOOPBACK_NAMES or address.startswith("127.")
