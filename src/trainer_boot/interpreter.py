"""The command line of a child process: this interpreter, with the options that this process was started with.

Whoever starts Python with `-I` wants nothing from the current folder, from PYTHONPATH or from the user's own packages.
That has to hold for the ranks too, and for every other process that is started on the way. Nothing else makes such
command lines.
"""

from __future__ import annotations

import sys

HASH_BASED = "default"  # of --check-hash-based-pycs


def options() -> list[str]:
    """The interpreter's options (`-I`, `-W`, `-X` ...) that give a child the flags of this process.

    What multiprocessing passes on, and what that leaves out: every `-X` (`-X pycache_prefix` says where bytecode is
    read from), `-u` and `--check-hash-based-pycs`. Not `-i`: a child has no prompt.
    """
    import _imp
    from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]  # what multiprocessing uses

    words: list[str] = _args_from_interpreter_flags()
    for name, value in getattr(sys, "_xoptions", {}).items():
        word = name if value is True else f"{name}={value}"
        if word not in words:
            words += ["-X", word]
    if getattr(sys.__stdout__, "write_through", False):
        words.append("-u")
    if _imp.check_hash_based_pycs != HASH_BASED:
        words += ["--check-hash-based-pycs", _imp.check_hash_based_pycs]
    return words


def python(executable: str | None = None) -> list[str]:
    """The interpreter (None: the running one) with these options; a script, `-m` or `-c` follows."""
    return [executable or sys.executable, *options()]


def tool(executable: str | None = None) -> list[str]:
    """The interpreter for a tool of its own, as in `-m pip`: nothing from the current folder or PYTHONPATH, and the
    user's own packages only where this process has them."""
    words = ["-I"] if sys.flags.isolated else ["-E", "-P", *(["-s"] if sys.flags.no_user_site else [])]
    return [executable or sys.executable, *words]


def again(executable: str) -> list[str]:
    """The words of this very command, for another interpreter."""
    return [executable, *sys.orig_argv[1:]]


def script_folder_counts() -> bool:
    """Whether this interpreter puts the folder of a script, or the current one for `-m`, on `sys.path`: not under
    `-P` and `-I`."""
    return not sys.flags.safe_path
