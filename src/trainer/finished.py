"""A run that is complete leaves a note in its folder, so that the same command does nothing more. No torch."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from trainer.agreed import settings_facts
from trainer.checkpoint.store import FOLDER, Damaged, verify
from trainer.folder import FINISHED_FILE
from trainer.safe_open import Unfit, read_regular
from trainer.schema import Config

_LARGEST_BYTES = 1 << 16


def note(config: Config, folder: Path, step: int) -> None:
    """Record that the run in `folder` is complete after `step` updates, its evaluation included."""
    temporary = folder / f".{FINISHED_FILE}.{os.getpid()}"
    temporary.write_text(json.dumps({"step": step, "settings": _digest(config)}) + "\n")
    temporary.replace(folder / FINISHED_FILE)


def message(config: Config) -> str:
    """Return what to say of a run that has nothing left to do; "" if it is not complete.

    A run is complete if it came to its end with the same settings, except for those that change no number, and its
    last checkpoint is whole.
    """
    folder = Path(config.run.folder)
    if config.run.resume not in ("auto", "must"):
        return ""
    found = _read(folder / FINISHED_FILE)
    step = found.get("step")
    if type(step) is not int or found.get("settings") != _digest(config):
        return ""
    checkpoint = folder / FOLDER / f"step-{step:08d}"
    try:
        verify(checkpoint)
    except Damaged:
        return ""
    length = f"run.steps to more than {step}" if config.run.steps else f"run.epochs to more than {config.run.epochs}"
    return (
        f"{folder} holds a finished run of {step} updates with these settings: nothing is left to do\n"
        f"To train longer, set {length}. To start anew, choose another run.folder.\n"
        f"newest checkpoint: {checkpoint}"
    )


def _digest(config: Config) -> str:
    """Return a digest of the settings that decide numbers."""
    facts = settings_facts(config, {})
    return hashlib.sha256(json.dumps([(fact.name, fact.value) for fact in facts]).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    """Return the note; empty where there is none, or none that can be read."""
    try:
        value = json.loads(read_regular(path, _LARGEST_BYTES))
    except (Unfit, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
