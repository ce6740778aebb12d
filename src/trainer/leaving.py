"""The end of a process without taking the interpreter apart, which after `import torch` takes longer than it helps."""

import contextlib
import os
import sys
from typing import NoReturn

BROKEN = 120  # what the interpreter itself ends with when standard output can't be flushed


def exit_status(leaving: SystemExit) -> int:
    """As the interpreter takes it: None is 0, a number is itself, anything else is printed and is 1."""
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)
    return 1


def leave_tidily(status: int) -> NoReturn:
    """Ends the process with `status` as the interpreter would: waits for threads that are no daemons, runs what was
    registered with atexit, flushes every open file; but takes no module and no object apart."""
    import atexit
    import threading

    with contextlib.suppress(Exception):  # each prints its own error, and the others go on
        threading._shutdown()  # type: ignore[attr-defined]  # the interpreter's own first step; no public name
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    _flush_files()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except (OSError, ValueError):
        status = status or BROKEN
    _flush_c()
    os._exit(status)


def _flush_files() -> None:
    """Writes out what files that nobody closed still hold back; a finalizer would do so."""
    import gc
    from io import BufferedRandom, BufferedWriter, TextIOWrapper

    gc.unfreeze()  # what was set apart is not listed
    kinds = (TextIOWrapper, BufferedWriter, BufferedRandom)
    files = [each for each in gc.get_objects() if issubclass(type(each), kinds)]
    # text first: it writes into the others
    for each in sorted(files, key=lambda file: not isinstance(file, TextIOWrapper)):
        with contextlib.suppress(OSError, ValueError):
            if not each.closed and each.writable():
                each.flush()


def _flush_c() -> None:
    """What C and C++ libraries have printed."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None:
        ctypes.CDLL(None).fflush(None)
