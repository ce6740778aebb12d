"""A trained model read back from its run folder, for evaluation and generation."""

from pathlib import Path

import torch
from torch import nn

from trainer import folder, session
from trainer.checkpoint import state as saved
from trainer.checkpoint.run_meta import read_run_meta
from trainer.checkpoint.store import Store
from trainer.config import resolve
from trainer.data.datasets import Datasets, open_for_use
from trainer.data.description import Damaged
from trainer.data.run_note import read_note
from trainer.errors import UserError
from trainer.launch.detect import World
from trainer.precision import Policy, make_policy
from trainer.schema import Config

_SOURCES = ("text", "jsonl", "field", "validation", "holdout", "images")
_CODE = (("model", "build"), ("model", "loss"), ("optim", "build"), ("data", "dataset"), ("data", "images"))
ALONE = World(rank=0, local_rank=0, world_size=1, local_world_size=1, launcher="none")


class Loaded:
    """A run's configuration, data and newest (or the named) model."""

    def __init__(
        self, config: Config, data: Datasets, model: nn.Module, policy: Policy, device: torch.device, checkpoint: Path
    ) -> None:
        self.config = config
        self.data = data
        self.model = model
        self.policy = policy
        self.device = device
        self.checkpoint = checkpoint


def load(place: Path, settings: list[tuple[str, str]], checkpoint: str) -> Loaded:
    """Read the run folder `place`, in which nothing changes. `settings` replace what its run file says; `checkpoint`:
    "" takes the newest whole one."""
    text = folder.read_run_file(place)
    origin = str(place / folder.RUN_FILE)
    config, of_run = resolve(origin, settings, {}, text).config, resolve(origin, [], {}, text).config
    config.run.folder = str(place)
    _find_from_elsewhere(config, place)
    store = Store(place, config.checkpoint.keep)
    if checkpoint:
        found = store.explicit(Path(checkpoint))
    else:
        newest, passed_over = store.newest()
        if newest is None:
            raise UserError(
                f"{place} has no whole checkpoint" + "".join(f"; {s}" for s in passed_over),
                "Train first, or give --checkpoint FOLDER.",
            )
        found = newest
    meta = read_run_meta(found)
    device = session.set_up(config, ALONE)
    compute = str(meta["compute"]).replace("fp8", "bf16")  # any device may load it
    policy = make_policy(config.precision, compute, device)
    changed = any(getattr(config.data, name) != getattr(of_run.data, name) for name in _SOURCES)
    data = open_for_use(config, place, meta["fingerprint"], changed)
    model = session.make_model(config, data.vocabulary, policy, device)
    saved.load_model(found, model)
    return Loaded(config, data, model, policy, device, found)


def _find_from_elsewhere(config: Config, place: Path) -> None:
    """Relative paths of the run file start where the run was started, unless they lead somewhere here."""
    try:
        note = read_note(place)
    except Damaged:
        return
    for section, key in _CODE:
        given = getattr(getattr(config, section), key)
        path = given.rpartition(":")[0] if ":" in given else given
        if note is not None and path and not Path(path).expanduser().exists():
            there = Path(note.directory) / path
            if there.exists():
                setattr(getattr(config, section), key, f"{there}{given[len(path) :]}")
