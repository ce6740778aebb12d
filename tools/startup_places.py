"""Where the files of a start come from: the page cache, a disk, or a slow shared file system."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.beds import slowfs
from trainer.bench.contenders import Place

DROP = Path("/proc/sys/vm/drop_caches")
NAMES = ("warm", "cold", "slow", "slow-warm")
SHARED_MILLISECONDS = 1.0
# the least that NFS keeps what it knows of a file; a job that starts again does so later than that
NAMES_SECONDS = 3


def environment() -> list[Path]:
    """The folders that a start reads its Python from: the interpreter's own and the environment's."""
    return list(dict.fromkeys(Path(prefix).resolve() for prefix in (sys.base_prefix, sys.prefix)))


def place(name: str, pyz: Path) -> Place:
    """The place of that name, for the environment of this process and the file."""
    if name == "warm":
        return Place()
    folders = [*environment(), pyz.parent]
    return Cold(folders) if name == "cold" else Slow(folders, warm=name == "slow-warm")


def counting(pyz: Path) -> Place:
    """A file system that takes no time and counts what is asked of it after a mount."""
    return Slow([*environment(), pyz.parent], warm=False, milliseconds=0.0)


def lacks(name: str) -> str:
    """Why there is no such place here, or ""."""
    if name == "cold" and not os.access(DROP, os.W_OK) and not hasattr(os, "posix_fadvise"):
        return "nothing here drops the page cache"
    return slowfs.lacks() if name.startswith("slow") else ""


class Cold(Place):
    """The disk: before each run what the kernel has cached is dropped; without root, that of the files concerned."""

    name = "cold"

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders

    @contextmanager
    def ready(self, bed: Path) -> Iterator[list[str]]:
        """Drops."""
        os.sync()
        try:
            DROP.write_text("3")
        except OSError:
            for folder in [*self.folders, bed]:
                forget(folder)
        yield []


def forget(folder: Path) -> int:
    """The kernel may drop the pages of all files in it, which stay where somebody has them mapped; how many files."""
    count = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                descriptor = os.open(f"{parent}/{name}", os.O_RDONLY | os.O_NOFOLLOW)
            except OSError:  # a link, or nothing for us to read
                continue
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
            count += 1
    return count


class Slow(Place):
    """The interpreter, the environment, the file and its snapshot lie on a file system of a millisecond a request.

    Mounted anew before each run, so nothing is cached. `warm`: what counts is a second start on the same mount, when
    data is cached, and names have to be asked for again.
    """

    def __init__(self, folders: list[Path], *, warm: bool, milliseconds: float = SHARED_MILLISECONDS) -> None:
        self.name = "slow-warm" if warm else "slow"
        self.starts = 2 if warm else 1
        self.between = NAMES_SECONDS + 1.0
        self.folders = folders
        self.milliseconds = milliseconds

    @contextmanager
    def ready(self, bed: Path) -> Iterator[list[str]]:
        """Mounts."""
        with tempfile.TemporaryDirectory(prefix="slow-") as name:
            delays = {"meta_ms": self.milliseconds, "read_ms": self.milliseconds}
            with slowfs.SlowFiles(Path("/"), Path(name), **delays, cache_s=NAMES_SECONDS) as self.files:
                folders = [folder for folder in (*self.folders, bed / "snapshots") if folder.is_dir()]
                yield self.files.over(folders)

    def counts(self) -> dict[str, int]:
        """Requests of the mount so far."""
        found = self.files.counts()
        return {name: found[name] for name in ("metadata", "open", "read", "bytes")}
