"""Which checkpoint a run goes on from. No torch: it is known before anything heavy is imported."""

import sys
from pathlib import Path

from trainer.checkpoint.store import Store
from trainer.errors import UserError
from trainer.schema import Config


def find(config: Config) -> Path | None:
    """The checkpoint that `run.resume` means, read and verified; None to start anew. Says what was passed over and why.

    Raises UserError where the asked-for one is missing or damaged, or where no checkpoint of the run is whole.
    """
    store = Store(Path(config.run.folder), config.checkpoint.keep)
    resume = config.run.resume
    if resume not in ("auto", "must", "never"):
        chosen = store.explicit(Path(resume))
        if any(path.name > chosen.name for path in store.list()):
            raise UserError(
                f"{config.run.folder} holds checkpoints later than {chosen}",
                "Choose another --run.folder, so that they are not overwritten.",
            )
        return chosen
    path, passed_over = store.newest()
    for sentence in passed_over:
        print(f"passed over: {sentence}", file=sys.stderr)
    if path is None and passed_over:
        raise UserError("no checkpoint of this run is whole", "Start in another --run.folder, or restore a checkpoint.")
    if path is None and resume == "must":
        raise UserError(f"{config.run.folder} has no checkpoint, and run.resume is must", "Set run.resume to auto.", 2)
    return path
