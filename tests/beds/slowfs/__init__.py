"""A slow shared file system: folders seen through FUSE, every request of which takes its time. Read-only.

    with SlowFiles(Path("/usr/lib"), Path(folder)) as slow:      # mounted at `folder`, cold
        ...
        slow.counts()                                            # requests so far, by kind

`over` puts it in the place of the folders themselves, for one command alone.
"""

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

SOURCE = Path(__file__).with_name("slowfs.c")
COMPILER = "cc"


def lacks() -> str:
    """Why there can't be one here, or ""."""
    if os.geteuid() != 0:
        return "a slow file system needs root, to mount it"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "a slow file system needs /dev/fuse"
    if shutil.which(COMPILER) is None or not Path("/usr/include/linux/fuse.h").is_file():
        return "a slow file system needs a C compiler and the kernel's headers: apt-get install gcc linux-libc-dev"
    if shutil.which("unshare") is None:
        return "a slow file system needs unshare, of util-linux"
    # a container may have root and yet no right to mount: CAP_SYS_ADMIN is bit 21
    status = Path("/proc/self/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    return "" if int(effective, 16) >> 21 & 1 else "a slow file system needs the right to mount (CAP_SYS_ADMIN)"


def compiled(folder: Path) -> Path:
    """The program, made in `folder`."""
    target = folder / "slowfs"
    if not target.exists():
        command = [COMPILER, "-O2", "-Wall", "-Wextra", str(SOURCE), "-o", str(target), "-lpthread"]
        subprocess.run(command, check=True, capture_output=True)
    return target


class SlowFiles:
    """A mount of `source` at `target`, gone when the block is left, or when this process is."""

    def __init__(self, source: Path, target: Path, *, meta_ms: float = 1.0, read_ms: float = 1.0, cache_s: int = 30):
        """`meta_ms`, `read_ms`: a request about a name, a read. `cache_s`: how long the kernel keeps names;
        as NFS keeps those of a folder, unless told otherwise."""
        self.source = source.resolve()
        self.target = target
        self.words = [str(round(1000 * meta_ms)), str(round(1000 * read_ms)), str(cache_s)]

    def __enter__(self) -> "SlowFiles":
        self._made = tempfile.TemporaryDirectory(prefix="slowfs-")
        try:
            program = compiled(Path(self._made.name))
            self.target.mkdir(exist_ok=True)
            self._process = subprocess.Popen(
                [str(program), str(self.source), str(self.target), *self.words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            if self._answer() != "ready":
                self._process.wait()
                raise OSError(f"cannot mount at {self.target}")
        except BaseException:
            self._made.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # the end of its input is the end of the mount
        if self._process.returncode < 0:
            self.detach()  # a server that was killed leaves its mount
        self._made.cleanup()

    def detach(self) -> None:
        """Takes the mount out of the tree of folders; files that are open stay so."""
        subprocess.run(["umount", "--lazy", str(self.target)], check=False, capture_output=True)

    def kill(self) -> None:
        """From now on there is no answer but an error, as of a server that is gone for good."""
        self._process.kill()
        self._process.wait()

    def counts(self) -> dict[str, int]:
        """Requests so far: lookup, absent (a look-up of what is not there), getattr, readlink, open, opendir, readdir,
        statfs, read; `metadata`: all but read; `bytes` read."""
        assert self._process.stdin is not None
        self._process.stdin.write("counts\n")
        self._process.stdin.flush()
        return dict(json.loads(self._answer()))

    def over(self, folders: list[Path]) -> list[str]:
        """Words before a command: it has a mount namespace of its own, where these folders, all in the source, are the
        slow ones."""
        mounts = []
        for folder in folders:
            real = folder.resolve()
            slow = self.target / real.relative_to(self.source)
            mounts.append(f"mount --bind {shlex.quote(str(slow))} {shlex.quote(str(real))}")
        script = " && ".join([*mounts, 'exec "$@"'])
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
