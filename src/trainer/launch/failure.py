"""What a failed rank leaves behind, and which of several failures was the first."""

import os
import signal
import time
from pathlib import Path

from trainer.errors import UserError
from trainer.surroundings import explained

# status of a rank that failed for a reason that starting again cannot mend: usage, run file, environment
HOPELESS = (2, 3)
LONGEST = 500

# what torch says on the ranks that lost a peer, or waited for one in vain: a consequence, not the cause
PEER_LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "pair closure",
    "socket closed",
    "timed out waiting",
    "wait timeout",
    "socket timeout",
    "read error",
    "ncclremoteerror",
    "ncclsystemerror",
    "remote process exited",
    "communicator was aborted",
    "watchdog caught collective operation timeout",
)

SIGNAL_FIXES = {
    "SIGKILL": "The kernel's out-of-memory killer is the usual cause (see `dmesg`): use a smaller batch.micro.",
    "SIGBUS": "A memory-mapped file or /dev/shm ran out of room: free some, or use fewer data.workers.",
    "SIGABRT": "Native code aborted (NCCL does when a collective takes longer than fault.timeout): see its messages "
    "above, or run with PYTHONFAULTHANDLER=1.",
}
CRASHES = ("SIGSEGV", "SIGILL", "SIGFPE")


class Failure:
    """One rank's end. `time_ns` is of the real-time clock, the same for all processes of a machine; `secondary` means
    that the rank only noticed that another one was gone."""

    def __init__(
        self,
        rank: int,
        kind: str,
        what: str,
        *,
        fix: str = "",
        status: int = 1,
        secondary: bool = False,
        traceback: str = "",
        time_ns: int = 0,
    ) -> None:
        self.rank = rank
        self.kind = kind
        self.what = what
        self.fix = fix
        self.status = status
        self.secondary = secondary
        self.traceback = traceback
        self.time_ns = time_ns or time.time_ns()

    def line(self) -> str:
        """The failure in one line."""
        kind = f"{self.kind}: " if self.kind else ""
        return f"rank {self.rank}: {kind}{self.what}"

    def write(self, path: Path) -> None:
        """Writes it whole or not at all: the parent may read at any moment."""
        import json

        beside = path.with_suffix(".part")
        beside.write_text(json.dumps(self.__dict__), encoding="utf-8")
        beside.replace(path)


def read(path: Path) -> Failure | None:
    """What a rank has written, or None when it wrote nothing."""
    import json

    try:
        return Failure(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def from_error(rank: int, error: BaseException) -> Failure:
    """The failure that `error` is on `rank`. A UserError has no kind: its sentence is enough."""
    now = time.time_ns()
    told = explained(error) or error
    secondary = _is_secondary(error)
    if isinstance(told, UserError):
        return Failure(
            rank, "", told.what, fix=told.fix, status=told.status, secondary=secondary,
            traceback=_traceback(error), time_ns=now,
        )  # fmt: skip
    what = _summary(error)
    return Failure(rank, type(error).__name__, what, secondary=secondary, traceback=_traceback(error), time_ns=now)


def from_status(rank: int, status: int, time_ns: int) -> Failure:
    """The failure of a rank that ended without a word; `status` is negative for a signal."""
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        crash = "Native code crashed: run with PYTHONFAULTHANDLER=1 to see where." if name in CRASHES else ""
        return Failure(rank, "", f"killed by {name}", fix=SIGNAL_FIXES.get(name, crash), time_ns=time_ns)
    what = f"exited with status {status} before the end of the run, without an error"
    fix = "See its messages above; code that calls os._exit ends a rank like this."
    return Failure(rank, "", what, fix=fix, status=status if status in HOPELESS else 1, time_ns=time_ns)


def first(failures: list[Failure]) -> Failure:
    """The cause: the earliest failure that is not the consequence of another one."""
    return min(failures, key=lambda failure: (failure.secondary, failure.time_ns))


def show(failure: Failure, unanswered: list[int]) -> list[str]:
    """The lines that tell of it: the traceback (of a UserError only on request), the error, the fix. `unanswered`:
    ranks that were still busy when the others had failed."""
    lines = []
    if failure.traceback and (failure.kind or os.environ.get("TRAINER_TRACEBACK")):
        lines.append(f"rank {failure.rank}, {failure.traceback}")
    lines.append(f"error: {failure.line()}")
    fix = failure.fix
    if failure.secondary and unanswered:
        names = ", ".join(map(str, unanswered))
        who = f"rank {names} was" if len(unanswered) == 1 else f"ranks {names} were"
        fix = f"{who[0].upper()}{who[1:]} busy or stuck: look there first. A larger --fault.timeout waits longer."
    if fix:
        lines.append(f"fix: {fix}")
    return lines


def _is_secondary(error: BaseException) -> bool:
    """Whether a lost peer is behind it. Only torch's RuntimeErrors: the user's own reset HTTP connection is a cause."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, RuntimeError):
            text = str(link).lower()
            if any(words in text for words in PEER_LOST):
                return True
        link = link.__cause__
    return False


def _summary(error: BaseException) -> str:
    """The message in one line; of an error from a loader worker the original's message."""
    if isinstance(error, SystemExit):
        return f"sys.exit({'' if error.code is None else repr(error.code)}) was called inside the run"
    try:
        lines = [line for line in str(error).splitlines() if line.strip()]
    except Exception as broken:
        return f"(its message cannot be shown: {type(broken).__name__})"
    if not lines:
        return "(no message)"
    line = lines[0].strip()
    if len(lines) > 1 and lines[1].startswith("Original Traceback"):
        # torch's wrapper: "Caught X in DataLoader worker process 0.", the original traceback, "X: message"
        where = line.partition(" in ")[2].rstrip(".")
        line = f"{lines[-1].strip().removeprefix(f'{type(error).__name__}: ')} (in {where})"
    return line if len(line) <= LONGEST else line[:LONGEST] + "..."


def _traceback(error: BaseException) -> str:
    """The traceback without its last line where that only repeats the error line."""
    import traceback

    text = "".join(traceback.format_exception(error)).rstrip("\n")
    last = [line.rstrip("\n") for line in traceback.format_exception_only(error)]
    if len(last) == 1 and "\n" not in last[0]:
        text = text.removesuffix(last[0]).rstrip("\n")
    return text
