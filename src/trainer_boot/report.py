"""Where the time of a start goes: marks on the monotonic clock, each the end of a named phase."""

import os
import sys
from time import CLOCK_BOOTTIME, clock_gettime_ns, monotonic_ns, process_time_ns

Phase = tuple[str, int, int]
"""Name, begin and end in nanoseconds of time.monotonic_ns()."""

_marks: list[tuple[str, int]] = []
_origin = 0  # 0: the start of the process
_begun = False


def mark(name: str) -> None:
    """Ends the phase `name`, which began where the one before ended. Costs a fraction of a microsecond."""
    _marks.append((name, monotonic_ns()))


def begin() -> None:
    """A run begins, and what came before it ends: the interpreter, the bundle, if this was started from one, and the
    configuration. A second run in a process counts from here, not from the start of the process."""
    global _origin, _begun
    if _begun:
        _marks.clear()
        _origin = monotonic_ns()
    elif bundle := getattr(sys.modules["trainer_boot"], "began", None):
        _marks[:0] = zip(("interpreter", "bundle"), bundle, strict=True)
    _begun = True
    mark("config" if _marks else "interpreter, config")


def keep_origin() -> None:
    """The start of this process is also that of those that it will fork."""
    global _origin
    _origin = _origin or process_start_ns()


def forked(restarted: bool) -> None:
    """In a forked process: the marks so far are its own, or, at a restart, count for nothing."""
    global _origin
    if restarted:
        _marks.clear()
        _origin = monotonic_ns()
    else:
        mark("fork")


def phases() -> list[Phase]:
    """The marked phases in their order, without gaps. The first begins with the process."""
    found: list[Phase] = []
    before = _origin or process_start_ns()
    for name, end in _marks:
        if end < before:  # marked by the process that this one was forked from
            continue
        found.append((name, before, end))
        before = end
    return found


def process_start_ns() -> int:
    """When this process was started, on the clock of time.monotonic_ns(); known to one clock tick (10 ms)."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # the name, in parentheses, may hold anything; start time is the 20th field after it (proc(5))
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        since_boot = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        age = clock_gettime_ns(CLOCK_BOOTTIME) - since_boot
    except (OSError, ValueError, IndexError):
        age = process_time_ns()  # at least as old as it has computed
    return monotonic_ns() - age
