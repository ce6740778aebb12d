"""Children by spawn and forkserver, which open the archive anew, get the build of the job that starts them.

The file may have been replaced meanwhile, or deleted. The job has its own still open, and the child opens it from
there. A pool starts children again for ever that end at once, so where there is no such file any more, whoever starts
a child is told.
"""

from __future__ import annotations

import os

from trainer_boot.finder import RESTART, BundleError
from trainer_boot.layout import HEADER_SIZE, word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trainer_boot.finder import Archive


def mend_spawn(archive: Archive, spawn: Any) -> None:
    """`multiprocessing.spawn` tells children where their main module is."""
    plain = spawn.get_preparation_data
    if getattr(plain, "archive", None) is archive:
        return

    def get_preparation_data(name: str) -> dict[str, Any]:
        """As it was. BundleError where no child could have this build."""
        data: dict[str, Any] = plain(name)
        if data.get("init_main_from_path") == archive.path:
            data["init_main_from_path"] = _place(archive)
        return data

    get_preparation_data.archive = archive  # type: ignore[attr-defined]  # so that it is done once
    spawn.get_preparation_data = get_preparation_data


def _place(archive: Archive) -> str:
    try:
        descriptor = os.open(archive.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        descriptor = -1
    else:
        try:
            if _is_whole(archive, descriptor):
                return archive.path
        finally:
            os.close(descriptor)
    if _is_whole(archive, archive.descriptor):
        return f"/proc/{os.getpid()}/fd/{archive.descriptor}"
    raise BundleError(f"{archive.path} has changed since this process started", RESTART)


def _is_whole(archive: Archive, descriptor: int) -> bool:
    try:
        size = os.fstat(descriptor).st_size
        return size == word(archive.head, "size") and os.pread(descriptor, HEADER_SIZE, 0) == archive.head
    except OSError:
        return False
