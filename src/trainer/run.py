"""Composition root: config -> data -> model -> parallelize -> optimizer -> checkpoint -> loop -> summary."""

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainer import folder as run_folder
from trainer.config import Resolved, to_toml
from trainer.errors import UserError
from trainer.launch.detect import World
from trainer.launch.stop import StopRequest
from trainer.mesh import plan_batch
from trainer.schema import Config

if TYPE_CHECKING:
    from trainer.data import Datasets

STOPPED = 75


def run(resolved: Resolved, world: World, stop: StopRequest) -> int:
    """Trains as the configuration says, as one rank of `world`. Returns the exit status: 0 done, 75 stopped."""
    config = resolved.config
    folder = Path(config.run.folder)
    plan = plan_batch(config, world.world_size)
    run_folder.make(folder, config.run.resume)
    with run_folder.locked(folder) if world.rank == 0 else contextlib.nullcontext():
        # the data comes before torch: a missing file is told in milliseconds
        data = open_data_together(config, folder, world.rank)
        require_torch()
        from trainer import session
        from trainer.summary import finish

        device = session.set_up(config, world)
        with session.process_group(config, world, device):
            training = session.assemble(config, world, device, data, plan, folder, stop)
            if world.rank == 0:
                run_folder.write_run_file(folder, to_toml(resolved))
            complete = training.loop.run()
            if complete:
                finish(config, training, folder)
            training.close()
    if complete:
        return 0
    if world.rank == 0:
        print(f"stopped at step {training.state.step}, saved in {folder}; the same command goes on from there")
    return STOPPED


def open_data_together(config: Config, folder: Path, rank: int) -> "Datasets":
    """Rank 0 prepares the data, however long that takes; the others wait for its files."""
    from trainer.data import is_prepared, open_data

    if rank == 0:
        return open_data(config, folder, prepare=True)
    while not is_prepared(config, folder):
        time.sleep(0.1)
    return open_data(config, folder, prepare=False)


def require_torch() -> None:
    """One clear error where the environment has no torch."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UserError(no_torch_message(), no_torch_fix(), 3) from None


def no_torch_message() -> str:
    """What is said when the interpreter has no torch."""
    return f"this interpreter, {sys.executable}, has no torch"


def no_torch_fix() -> str:
    """The command that mends it."""
    from trainer import startup

    bundle = startup.bundle_path()
    name = Path(bundle).name if bundle else "trainer"
    return f"run it with the interpreter of the locked environment: `uv sync`, then `.venv/bin/python {name} ...`"
