"""What the trainer itself keeps in a checkpoint's manifest: counters, number format, data, run file. No torch."""

from pathlib import Path
from typing import Any

from trainer.checkpoint.files import Damaged
from trainer.checkpoint.manifest import MANIFEST, read_manifest
from trainer.errors import UserError

_KINDS: dict[str, type] = {"state": dict, "compute": str, "fingerprint": str, "world_size": int, "config": str}


def read_run_meta(path: Path) -> dict[str, Any]:
    """Return the `meta` of a checkpoint of a run, with the types that the rest of the trainer counts on.

    Raises UserError if the manifest is damaged or lacks something.
    """
    fix = "Use another checkpoint: `trainer checkpoints verify RUN_FOLDER` shows which ones are whole."
    try:
        meta = read_manifest(path).meta
    except Damaged as problem:
        raise UserError(f"the checkpoint {path} is damaged: {problem.file} {problem.why}", fix) from problem
    wrong = [name for name, kind in _KINDS.items() if type(meta.get(name)) is not kind]
    if not wrong and not all(type(value) is int and value >= 0 for value in meta["state"].values()):
        wrong = ["state"]
    if wrong:
        raise UserError(f"{path / MANIFEST} has no valid {' and no valid '.join(wrong)}: it is not of a run", fix)
    return meta
