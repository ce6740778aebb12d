"""The run folder: made, locked against a second trainer, and never overwritten silently. No torch."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from trainer.errors import UserError
from trainer.launch import foreign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

FINISHED_FILE = "finished.json"  # trainer.finished writes and reads it
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
        raise _refused(folder, error) from None
    if resume == "never" and holds_run(folder):
        raise UserError(
            f"the folder {folder} already holds a run and run.resume is never",
            "Choose another folder with --run.folder, or set --run.resume to auto to continue that run.",
            2,
        )


def _refused(folder: Path, error: OSError) -> UserError:
    """Why `folder` can't be the run folder."""
    for each in (folder, *folder.parents):
        if os.path.exists(each) and not each.is_dir():  # noqa: PTH110 - pathlib's raises for names that are too long
            return UserError(f"run.folder: {each} is a file, not a directory", "Choose another with --run.folder.", 2)
    if isinstance(error, FileNotFoundError) and not folder.is_absolute():
        try:
            os.getcwd()  # noqa: PTH109 - pathlib's asks for no folder
        except FileNotFoundError:
            return UserError("the current directory has been removed", "Change to one that exists (`cd`).")
    what = f"the run folder {folder} can't be written to: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError(what, "Free space there, or choose another with --run.folder.")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return UserError(what, "Make it writable, or choose another with --run.folder.")
    return UserError(what, "Choose another with --run.folder.")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one trainer; a second one is refused. The lock ends with the process, however that ends."""
    with open(folder / ".lock", "a+") as file:
        try:
            # a record lock: unlike flock it is not inherited by loader workers that may outlive a killed rank
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise _in_use(folder, file) from None
        except OSError:
            pass  # a file system without locks: go on without one
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {os.uname().nodename}")
            file.flush()
        yield


def _in_use(folder: Path, lock: "TextIO") -> UserError:
    """Who holds the folder, and how this process may have come to want it too."""
    lock.seek(0)
    holder = lock.read(200).strip()
    what = (
        f"another trainer ({holder}) is using the run folder {folder}"
        if holder
        else (f"another trainer is using the run folder {folder}")
    )
    launcher = foreign.seen(os.environ)
    if launcher and not os.environ.get("RANK"):
        return UserError(
            f"{what}; this process was started by {launcher}, and RANK and WORLD_SIZE are not set, so it trains alone",
            "To train together, set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in each task; to train "
            "apart, give each task its own --run.folder.",
        )
    return UserError(what, "Wait until it has ended, or choose another folder with --run.folder.")


def write_run_file(folder: Path, text: str) -> None:
    """Leaves the resolved run file in the folder, for `eval`, `generate` and readers."""
    temporary = folder / f".{RUN_FILE}.{os.getpid()}"
    temporary.write_text(text, encoding="utf-8", errors="surrogateescape")  # names may be any bytes
    temporary.replace(folder / RUN_FILE)


def read_run_file(folder: Path) -> str:
    """The resolved run file of a run."""
    try:
        return (folder / RUN_FILE).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        raise UserError(
            f"{folder} is not a run folder: it has no {RUN_FILE}",
            "Give the folder that a run printed, for example runs/default.",
            2,
        ) from None
