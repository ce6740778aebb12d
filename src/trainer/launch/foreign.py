"""Launchers whose ranks the trainer does not read: recognised, so that their tasks do not each train alone."""

from collections.abc import Mapping
from typing import NamedTuple

from trainer.errors import UserError
from trainer.launch.detect import World


class Launcher(NamedTuple):
    """`rank`, `size`, `local`: its variables for a task's number, the number of tasks (or ""), and the number on the
    machine (or "")."""

    name: str
    rank: str
    size: str
    local: str


LAUNCHERS = (
    Launcher("Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    Launcher("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    Launcher("MVAPICH2's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
    Launcher("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK"),
    Launcher("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"),
    Launcher("an MPI launcher", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    Launcher("a PMIx launcher", "PMIX_RANK", "", ""),
    Launcher("PALS", "PALS_RANKID", "", "PALS_LOCAL_RANKID"),
    Launcher("LSF's blaunch", "LSF_PM_TASKID", "", ""),
    Launcher("PBS's pbsdsh", "PBS_TASKNUM", "", ""),
    Launcher("Grid Engine", "SGE_TASK_ID", "", ""),
    Launcher("a Kubernetes indexed job", "JOB_COMPLETION_INDEX", "", ""),
)


def seen(environ: Mapping[str, str]) -> str:
    """The launcher and its variables that are set, for messages; "" where there are none."""
    for launcher in LAUNCHERS:
        names = [name for name in launcher[1:] if name and environ.get(name)]
        if names and environ.get(launcher.rank, "undefined") != "undefined":
            return f"{launcher.name} ({', '.join(f'{name}={environ[name]}' for name in names)})"
    return ""


def refuse_task(environ: Mapping[str, str], world: World) -> None:
    """UserError (status 2) where this process is one of several tasks of a launcher, and nothing says which rank it is:
    each would train alone, in the same run folder."""
    if world.launcher != "none":
        return
    for launcher in LAUNCHERS:
        size = environ.get(launcher.size, "") if launcher.size else ""
        rank = environ.get(launcher.rank, "")
        several = size.isdigit() and int(size) > 1 and (rank or launcher.rank == "SLURM_PROCID")  # it may be missing
        if several or (launcher.size and rank.isdigit() and int(rank) > 0):
            local = f", LOCAL_RANK=${launcher.local}" if launcher.local else ""
            shown = ", ".join(f"{name}={environ[name]}" for name in launcher[1:] if environ.get(name))
            raise UserError(
                f"{launcher.name} has started this process as one of several tasks ({shown}), and RANK and WORLD_SIZE, "
                "which tell the trainer its rank, are not set: each task would train alone",
                f"Set RANK=${launcher.rank}, WORLD_SIZE=${launcher.size}{local}, MASTER_ADDR and MASTER_PORT in each "
                "task, or start torchrun once on each host; RANK=0 WORLD_SIZE=1 lets each task train alone.",
                2,
            )
