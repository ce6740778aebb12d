"""The longest part of a start: the layers of the fast start, torch, and the rooms of the trainer that need it."""

import os
from importlib import import_module

from trainer import start_policy, startup
from trainer.launch.detect import World
from trainer.launch.forking import NOT_FORKED
from trainer.schema import Config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.layers import Note

# stands for the process that ranks are forked from
PARENT = World(0, 0, 1, 1, "parent")
# what ranks need beyond what the session imports at once
OF_RANKS = ("torch.distributed", "trainer.launch.agreement", "trainer.launch.comm", "trainer.launch.store")


def bring_in(config: Config, world: World) -> "list[Note]":
    """Puts the layers on and imports what a run needs; the layers' notes. Nothing is computed, no device is touched."""
    notes = start_policy.put_on(config.start, start_policy.doubt(config), why_not_forked(world))
    startup.mark("layers")
    startup.time_shared_objects(True)
    import torch  # noqa: F401  # marked as one phase

    startup.mark("torch")
    from trainer import session, start_report, summary  # noqa: F401

    startup.mark("imports")
    startup.time_shared_objects(False)
    return notes


def bring_in_for_ranks(config: Config) -> "list[Note]":
    """The same in a process that ranks are forked from: also what they would import one by one, once for all."""
    startup.begin()
    startup.keep_origin()
    notes = bring_in(config, PARENT)
    copies = config.parallel.strategy == "ddp" and config.precision.weights != "bf16"
    names = [*OF_RANKS, f"trainer.parallel.{'ddp' if copies else 'fsdp'}"]
    if not config.model.build:
        names.append(f"trainer.models.{config.model.kind}")
    for name in names:
        import_module(name)
    startup.settle()
    startup.take_off()
    startup.mark("imports of ranks")
    return notes


def why_not_forked(world: World) -> str:
    """Why this process was not forked after the imports; "" for one that others are forked from."""
    if world is PARENT:
        return ""
    if world.launcher == "none":
        return "only one rank"
    return os.environ.get(NOT_FORKED, f"the ranks were not started by --nproc but by {world.launcher}")
