"""The run folder: made, locked against a second trainer, and never overwritten silently. No torch."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from trainer.errors import UserError

RUN_FILE = "resolved.toml"  # not run.toml: the user's own may lie in the same folder


def holds_run(folder: Path) -> bool:
    """Whether a run has ever been started here."""
    return (folder / RUN_FILE).exists() or (folder / "checkpoints").is_dir()


def make(folder: Path, resume: str) -> None:
    """Makes the folder and shows by a trial file that it can be written to. Safe to call from several processes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial = folder / f".trial-{os.getpid()}"
        try:
            trial.write_bytes(b"x" * 4096)
        finally:
            with contextlib.suppress(OSError):
                trial.unlink()
    except OSError as error:
        raise UserError(
            f"the run folder {folder} cannot be written to: {error.strerror}",
            "free or unlock it, or choose another with --run.folder",
        ) from None
    if resume == "never" and holds_run(folder):
        raise UserError(
            f"the folder {folder} already holds a run and run.resume is never",
            "choose another with --run.folder, or --run.resume auto to go on with it",
            2,
        )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder for one trainer; a second one is refused. The lock goes with the process, however it ends."""
    with open(folder / ".lock", "w") as file:
        try:
            # a record lock: unlike flock it is not inherited by loader workers that may outlive a killed rank
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise UserError(
                f"another trainer is using the run folder {folder}", "wait for it, or choose another with --run.folder"
            ) from None
        except OSError:
            pass  # a file system without locks: go on without one
        yield


def write_run_file(folder: Path, text: str) -> None:
    """Leaves the resolved run file in the folder, for `eval`, `generate` and readers."""
    temporary = folder / f".{RUN_FILE}.{os.getpid()}"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(folder / RUN_FILE)


def read_run_file(folder: Path) -> str:
    """The resolved run file of a run."""
    try:
        return (folder / RUN_FILE).read_text(encoding="utf-8")
    except OSError:
        raise UserError(
            f"{folder} is not a run folder: it has no {RUN_FILE}",
            "give the folder that a run printed, e.g. runs/default",
            2,
        ) from None
