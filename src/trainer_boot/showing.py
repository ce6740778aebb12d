"""The modules of Python's that show source lines find those of the archive's modules too.

`linecache` asks a loader only where it is handed the module; `warnings` and `tracemalloc` hand it the name of a file
alone, and a module that runs as `__main__` hands it the wrong name. Before Python 3.13, errors in threads are shown by
C code that reads files only.
"""

from __future__ import annotations

import sys
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trainer_boot.finder import BundleFinder


def mend_lines(finder: BundleFinder, linecache: Any) -> None:
    """`linecache` finds the lines of every bundled module by its file name."""
    plain = linecache.lazycache
    if getattr(plain, "archive", None) is finder.archive:
        return
    prefix, loader = finder.archive.prefix, finder.loader

    def lazycache(filename: str, module_globals: dict[str, Any] | None) -> bool:
        """Notes who has the text of that file; False if nobody has, or it is there."""
        if filename.startswith(prefix) and filename not in linecache.cache:
            name = filename[len(prefix) :].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            if name in finder.modules and loader.get_filename(name) == filename:
                linecache.cache[filename] = (partial(loader.get_source, name),)
                return True
        return bool(plain(filename, module_globals))

    lazycache.archive = finder.archive  # type: ignore[attr-defined]  # so that it is done once
    linecache.lazycache = lazycache


def mend_threads(threading: Any) -> None:
    """Errors in threads are printed with their lines, unless somebody prints them otherwise."""
    plain = getattr(threading, "__excepthook__", None)
    if sys.version_info < (3, 13) and plain is not None and threading.excepthook is plain:
        threading.excepthook = partial(_print_thread_s_exception, plain)


def _print_thread_s_exception(plain: Any, arguments: Any) -> None:
    """As `threading.excepthook` does it, with source lines."""
    if arguments.exc_type is SystemExit or sys.stderr is None:
        plain(arguments)
        return
    try:
        import traceback

        lines = traceback.format_exception(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
        thread = arguments.thread
        name = thread.name if thread is not None else sys.modules["threading"].get_ident()
        text = f"Exception in thread {name}:\n{''.join(lines)}"
    except Exception:  # no memory, no file: then without source lines
        plain(arguments)
        return
    sys.stderr.write(text)
    sys.stderr.flush()
