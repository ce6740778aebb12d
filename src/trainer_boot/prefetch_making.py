"""Records which pages of its shared objects a process has touched."""

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_boot.prefetch import Pages

PAGE = os.sysconf("SC_PAGE_SIZE")
# a page table's entry is eight bytes; the highest bit says that the page is there
ENTRY = 8
THERE = bytes(value >> 7 for value in range(256))
# reading a few pages too many costs less than another read
RUN = re.compile(rb"\x01(?:\x00{0,31}\x01)*")


def record(previous: "Iterable[Pages]" = ()) -> "tuple[Pages, ...]":
    """Of this process; what `previous` has of files that are the same is kept. Nothing where the kernel is silent."""
    found = _present()
    pages = []
    for path, changed, size, ranges in previous:
        if path in found:
            found[path] += ranges
        elif _facts(path) == (changed, size):
            pages.append((path, changed, size, ranges))
    for path, runs in found.items():
        facts = _facts(path)
        if facts is not None:
            pages.append((path, *facts, _merged([(0, PAGE), *runs], facts[1])))
    return tuple(pages)


def _present() -> dict[str, list[tuple[int, int]]]:
    """By file: offset and length of what is mapped and touched, of files of which some part can be executed."""
    found: dict[str, list[tuple[int, int]]] = {}
    objects: set[str] = set()
    try:
        with open("/proc/self/maps", "rb") as file:
            lines = file.read().splitlines()
        descriptor = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        for line in lines:
            words = line.split(maxsplit=5)
            if len(words) < 6 or not words[5].startswith(b"/") or words[5].endswith(b" (deleted)"):
                continue
            path = os.fsdecode(words[5])
            first, last = (int(word, 16) for word in words[0].split(b"-"))
            if b"x" in words[1]:
                objects.add(path)
            entries = os.pread(descriptor, (last - first) // PAGE * ENTRY, first // PAGE * ENTRY)
            there = entries[ENTRY - 1 :: ENTRY].translate(THERE)
            start = int(words[2], 16)
            runs = found.setdefault(path, [])
            runs += [(start + run.start() * PAGE, len(run.group()) * PAGE) for run in RUN.finditer(there)]
    except OSError:
        return {}
    finally:
        os.close(descriptor)
    return {path: runs for path, runs in found.items() if path in objects}


def _merged(ranges: list[tuple[int, int]], size: int) -> tuple[tuple[int, int], ...]:
    """In their order, without overlaps, within the file."""
    merged: list[list[int]] = []
    for offset, length in sorted(ranges):
        end = min(offset + length, size)
        if merged and offset <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        elif offset < end:
            merged.append([offset, end])
    return tuple((start, end - start) for start, end in merged)


def _facts(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
