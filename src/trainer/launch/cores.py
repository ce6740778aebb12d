"""How many cores this process may really use."""

import os
from pathlib import Path

from trainer.arguments import whole

# in a container, the group of this process is the one at the top
_WITHOUT_PROC = "1:cpu:/\n0::/\n"


def usable_cores(root: Path = Path("/")) -> int:
    """Cores of the affinity mask, fewer when the control group's quota is smaller; at least 1.

    A container limited to 4 of 64 cores has all 64 in its mask: 64 threads then share 4 cores and are throttled.
    """
    cores = len(os.sched_getaffinity(0))
    quota = _quota(root)
    return max(1, min(cores, int(quota))) if quota else cores


def ranks_here(text: str) -> int:
    """The number of ranks that `--nproc TEXT` asks for; auto: a rank a GPU, else two where there are two cores.
    UserError (status 2) for anything else than a number."""
    if text != "auto":
        return whole({"nproc": text}, "nproc", 1, 1)
    with os.scandir("/dev") as devices:
        cards = sum(device.name.startswith("nvidia") and device.name[6:].isdigit() for device in devices)
    return cards or min(2, usable_cores())


def _quota(root: Path) -> float:
    """Smallest limit in cores on the way from this process's control group to the top; 0 when there is none."""
    limits: list[float] = []
    for line in (_read(root / "proc/self/cgroup") or _WITHOUT_PROC).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        group = top / path.lstrip("/")
        folders = [group, *group.parents[: len(group.parts) - len(top.parts)]]
        limits.extend(_limit(folder, version=1 if controllers else 2) for folder in folders)
    return min((limit for limit in limits if limit), default=0.0)


def _limit(folder: Path, version: int) -> float:
    names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    fields = " ".join(_read(folder / name) for name in names).split()
    if len(fields) != 2 or not fields[0].isdigit() or not fields[1].isdigit() or int(fields[1]) == 0:
        return 0.0  # "max", -1, or no such file: not limited here
    return int(fields[0]) / int(fields[1])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
