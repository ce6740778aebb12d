"""Token files are compared with their digests once: what was verified is remembered by inode, size and times.

No numpy where there is nothing to compare: that is most starts.
"""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from trainer.data.description import Damaged, Prepared, opened, paths, require_sizes
from trainer.safe_open import Identity, Unfit, read_regular

RECORD = "verified.json"
_LARGEST_BYTES = 1 << 20


def require_verified(found: Prepared, run_folder: Path) -> None:
    """Return when every token file is what was written. Raises `Damaged` for the first that is not.

    Files that were verified before, and have not changed since, are not read. The record of it lies beside the data, or
    where this user cannot write there, in the run's folder.
    """
    require_sizes(found)
    identities = _identities(found)
    records = [found.folder / RECORD, run_folder / RECORD]
    if any(_recorded(record, found, identities) for record in records):
        return
    from trainer.data.digests import compare

    compare(found)
    if _identities(found) != identities:
        raise Damaged(found.folder, "changed while it was read")
    remember(found, run_folder)


def remember(found: Prepared, run_folder: Path) -> None:
    """Record that the files are right as they are."""
    text = json.dumps({found.fingerprint: _identities(found)}) + "\n"
    for folder in (found.folder, run_folder):
        partial = folder / f".{RECORD}.{os.getpid()}"
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w") as file:
                file.write(text)
            partial.replace(folder / RECORD)
        except OSError:
            continue  # verified again the next time
        return


def _files(found: Prepared) -> Iterator[Path]:
    for name, _ in found.splits():
        yield from paths(found.folder, name)


def _identities(found: Prepared) -> list[list[int]]:
    identities = []
    for path in _files(found):
        with opened(path) as file:
            identities.append(list(Identity.of(os.fstat(file.fileno()))))
    return identities


def _recorded(record: Path, found: Prepared, identities: list[list[int]]) -> bool:
    """Whether this user has recorded that these very files are right."""
    try:
        status = os.lstat(record)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            return False
        known = json.loads(read_regular(record, _LARGEST_BYTES))
    except (OSError, Unfit, ValueError, RecursionError):
        return False
    return isinstance(known, dict) and known.get(found.fingerprint) == identities
