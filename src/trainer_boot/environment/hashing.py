"""Every installed file against the hash in its RECORD."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

from trainer_boot.environment.contents import record_of
from trainer_boot.environment.problems import Problem, mend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from trainer_boot.environment.installed import Installed, Survey

    # bytes read so far, bytes in all
    Progress = Callable[[int, int], None]

PIECE = 1 << 20
TOLD = 5
"""So many files of a distribution are named."""


def compare(
    requirements: Sequence[Mapping[str, object]], survey: Survey, progress: Progress, *, sizes_only: bool = False
) -> list[Problem]:
    """Reads every file of what is needed and installed; a problem for each distribution that differs. `progress` is
    called now and then. `sizes_only`: existence and sizes, nothing is read."""
    files = list(_files(requirements, survey))
    total = sum(size for *_, size in files)
    done = 0
    wrong: dict[str, list[str]] = {}
    look = _size if sizes_only else _hash
    with ThreadPoolExecutor(max_workers=max(2, min(8, os.cpu_count() or 1))) as pool:
        for (distribution, path, _, size), why in zip(files, pool.map(look, files), strict=True):
            done += size
            progress(done, total)
            if why:
                wrong.setdefault(distribution.name, []).append(f"{path} {why}")
    progress(total, total)
    problems = []
    for requirement in requirements:
        name = str(requirement["name"])
        found = next(iter(survey.of(name)), None)
        if found is not None and record_of(found) is None and found.entry.endswith(".dist-info"):
            what = f"{name} {found.version} has no RECORD: its files cannot be compared"
            problems.append(_problem(requirement, found, what))
        elif found is not None and name in wrong:
            told = wrong[name]
            more = f" and {len(told) - TOLD} more" if len(told) > TOLD else ""
            what = f"{name} {found.version} is not as it was installed: {', '.join(told[:TOLD])}{more}"
            problems.append(_problem(requirement, found, what))
    return problems


def bytes_of(requirements: Sequence[Mapping[str, object]], survey: Survey) -> int:
    """What the files of these take, by their RECORDs."""
    return sum(size for *_, size in _files(requirements, survey))


def _files(requirements: Sequence[Mapping[str, object]], survey: Survey) -> Iterator[tuple[Installed, str, str, int]]:
    """(distribution, path in its folder, hash or "", size)."""
    for requirement in requirements:
        for distribution in survey.of(str(requirement["name"])):
            text = record_of(distribution) or b""
            for row in csv.reader(text.decode("utf-8", "surrogateescape").splitlines()):
                if len(row) == 3 and row[1]:  # its own line and compiled files have none
                    yield distribution, row[0], row[1], int(row[2] or 0)


def _hash(entry: tuple[Installed, str, str, int]) -> str:
    """What is wrong with a file; "" where nothing is."""
    distribution, path, expected, _ = entry
    kind, _, wanted = expected.partition("=")
    try:
        total = hashlib.new(kind)
        with open(os.path.join(distribution.site, path), "rb", buffering=0) as file:
            while piece := file.read(PIECE):
                total.update(piece)
    except OSError as error:
        return "is gone" if isinstance(error, FileNotFoundError) else f"can't be read ({error.strerror})"
    except ValueError:
        return f"has a hash that is not known here ({kind})"
    found = base64.urlsafe_b64encode(total.digest()).rstrip(b"=").decode()
    return "" if found == wanted.rstrip("=") else "is another"


def _size(entry: tuple[Installed, str, str, int]) -> str:
    distribution, path, _, size = entry
    try:
        found = os.stat(os.path.join(distribution.site, path)).st_size
    except OSError as error:
        return "is gone" if isinstance(error, FileNotFoundError) else f"can't be read ({error.strerror})"
    # an installer writes the interpreter's path into scripts
    return "" if found == size or path.startswith("../") else f"has {found} bytes, not {size}"


def _problem(requirement: Mapping[str, object], found: Installed, what: str) -> Problem:
    locked = str(requirement["version"])
    return Problem(found.name, locked, found.version, what, mend(requirement, again=True), kind="changed")
