"""How much of the imports is the linker: each shared object that is opened meanwhile is timed.

Opening is finding, mapping and relocating it and what it needs, and running the initializers in it. What torch opens by
ctypes, what the layer `libraries` opens, and the extension modules themselves come through one of two functions.
"""

import sys
from importlib.machinery import ExtensionFileLoader
from time import monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# begin and end in nanoseconds of time.monotonic_ns(); none overlaps another
intervals: list[tuple[int, int]] = []
_restore: "list[Callable[[], None]]" = []
_depth = 0


def watch() -> None:
    """From now on, until `unwatch`. Costs a microsecond for each of some sixty."""
    if _restore:
        return
    import _ctypes  # torch imports ctypes in any case

    _put_on(ExtensionFileLoader, "create_module")
    _put_on(_ctypes, "dlopen")
    if "ctypes" in sys.modules:
        _put_on(sys.modules["ctypes"], "_dlopen")


def unwatch() -> None:
    """Everything that was put on is taken off, also where others have taken it for their own."""
    import _ctypes

    timed = vars(_ctypes)["dlopen"]
    while _restore:
        _restore.pop()()
    ctypes: Any = sys.modules.get("ctypes")
    if ctypes is not None and ctypes._dlopen is timed:
        ctypes._dlopen = _ctypes.dlopen


def within(begin: int, end: int) -> int:
    """Nanoseconds of that time that were spent on opening."""
    return sum(max(0, min(end, last) - max(begin, first)) for first, last in intervals)


def _put_on(place: "Any", name: str) -> None:
    plain = vars(place)[name]

    def timed(*arguments: "Any") -> "Any":
        global _depth
        _depth += 1
        began = monotonic_ns()
        try:
            return plain(*arguments)
        finally:
            _depth -= 1
            if not _depth:  # initializers may open more
                intervals.append((began, monotonic_ns()))

    setattr(place, name, timed)
    _restore.append(lambda: setattr(place, name, plain))
