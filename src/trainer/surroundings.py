"""What the surroundings refuse, in words: memory, descriptors, room on a disk, names that can't be encoded. Without it
these would be tracebacks of whatever line happened to meet them."""

import errno
import os
import sys

from trainer.errors import UserError

SMALLER = "Use a smaller batch.micro or model, or memory.recompute; `trainer check` estimates what a rank needs."
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG)
TOO_MANY = (errno.EMFILE, errno.ENFILE)
KINDS = (MemoryError, RuntimeError, ImportError, OSError, UnicodeEncodeError)
STREAMS = {1: "standard output", 2: "standard error"}


def explained(error: BaseException) -> UserError | None:
    """The error that a user is shown instead of `error`; None where it is something else."""
    if not isinstance(error, KINDS):
        return None
    try:
        text = str(error)
    except Exception:  # an error of the user's own that can't be shown
        return None
    if isinstance(error, MemoryError) or _is_out_of_memory(error, text):
        return UserError(_out_of_memory(text), SMALLER)
    if isinstance(error, ImportError) and ("failed to map" in text or "cannot allocate memory" in text.lower()):
        return UserError(
            f"not enough memory to load a library: {_line(text)}{_limit()}",
            "Raise the limit on address space (`ulimit -v`), or free memory.",
            3,
        )
    if isinstance(error, UnicodeEncodeError):
        return _not_encodable(error)
    if isinstance(error, RuntimeError) and "can't start new thread" in text:
        return UserError(
            "the limit on processes and threads is reached", "Raise `ulimit -u`, or use fewer ranks or workers.", 3
        )
    if isinstance(error, OSError):
        return _refused(error)
    return None


def _is_out_of_memory(error: BaseException, text: str) -> bool:
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    if type(error).__name__ == "OutOfMemoryError":  # torch's, which is not imported for this
        return True
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text or "out of memory" in text or "bad_alloc" in text
    )


def _out_of_memory(text: str) -> str:
    import re

    asked = re.search(r"tried to allocate (\d+) bytes", text)
    if asked:
        return f"not enough memory: torch asked for {_size(int(asked[1]))} at once{_limit()}"
    if "out of memory" in text:
        return _line(text)  # of a device, which torch tells in full
    return f"not enough memory{_limit()}"


def _limit() -> str:
    """The limit on this process's address space, where there is one."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError, ValueError):
        return ""
    return "" if soft == resource.RLIM_INFINITY else f" (this process may use {_size(soft)}, by `ulimit -v`)"


def _refused(error: OSError) -> UserError | None:
    reason = error.strerror or str(error)
    if error.errno in TOO_MANY:
        return UserError(
            f"too many open files{_of(error)}", "Raise the limit (`ulimit -n`), or use fewer data.workers.", 3
        )
    if error.errno not in NO_ROOM:
        return None
    if error.filename is None:
        stream = _full_stream(error.errno)
        if stream:
            return UserError(f"{stream} can't be written to: {reason}", "Free space there, or send it elsewhere.")
    return UserError(f"can't write{_of(error)}: {reason}", "Free space, or choose another place with --run.folder.")


def _of(error: OSError) -> str:
    return f" {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""


def _full_stream(number: int) -> str:
    """Which of the standard streams refuses what it is given, in that way."""
    for descriptor, name in STREAMS.items():
        try:
            os.write(descriptor, b"\n")
        except OSError as refused:
            if refused.errno == number:
                return name
    return ""


def _not_encodable(error: UnicodeEncodeError) -> UserError:
    shown = ascii(error.object if len(error.object) <= 100 else error.object[error.start : error.end])
    if error.encoding.lower().replace("-", "") == "utf8":
        return UserError(
            f"this name or text is not valid UTF-8: {shown}", "Rename the file, or link it under a name that is.", 2
        )
    return UserError(
        f"the encoding {error.encoding} of this locale has no way to write {shown}",
        "Set LC_ALL=C.UTF-8 (or PYTHONUTF8=1), or use names in ASCII.",
        2,
    )


def _size(count: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count} bytes"


def _line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def tell(line: str) -> None:
    """Print a line to standard output. That its reader has gone ends no run."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def quiet_end() -> None:
    """After a stream has refused what it was given: what is still held back for it goes nowhere, without a word."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        except AttributeError:
            continue
