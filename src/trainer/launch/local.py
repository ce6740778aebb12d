"""Starts the ranks of a run on this machine, watches them, and tells of the first failure. Never imports torch."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

from trainer import startup
from trainer.launch import failure, scratch
from trainer.launch.cores import usable_cores
from trainer.launch.detect import LOCAL_BUILD, LOCAL_FOLDER, LOCAL_PARENT, RESTARTS
from trainer.launch.failure import HOPELESS, Failure
from trainer.launch.signals import Signals
from trainer.launch.starting import Starter
from trainer.launch.stop import INTERRUPTED

STOPPED = 75
TERMINATED = 128 + signal.SIGTERM
CLEAN = (0, STOPPED)
KILL_SECONDS = 30.0
# what another launcher left in our environment does not hold for our ranks
FOREIGN = ("MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME")
FOREIGN_PREFIX = "TORCHELASTIC_"


class Outcome(NamedTuple):
    """How one start of all ranks ended. `unanswered`: ranks that were killed without having said anything."""

    status: int
    failure: Failure | None
    unanswered: list[int]


def run_ranks(
    starter: Starter,
    nproc: int,
    *,
    max_restarts: int,
    grace: float = 1.0,
    trust_status: bool = False,
    settings: str = "",
) -> int:
    """Runs `nproc` processes that `starter` makes as the ranks of one run; the exit status of the whole.

    0: all ranks are done; 75: stopped on request and saved; 130: a second SIGINT; 143 (130 after SIGINT): ended by the
    signal that asked to stop. Otherwise a rank failed: the others get `grace` seconds to write down what they saw, are
    killed, and the first failure is told once, at the end; the status is its UserError's, or 1. A rank that ends with 0
    without having said that it is done has failed too, unless `trust_status`: then it is not one of ours. Up to
    `max_restarts` times all ranks are started again instead, but not after an error that would only come
    again (status 2 or 3) nor after a request to stop. SIGINT, SIGTERM, SIGUSR1 and SIGHUP are passed on as one SIGTERM.
    `settings`: a text that ranks read with `scratch.settings`. Main thread only. Leaves no process and no file behind.
    """
    assert nproc >= 1 and max_restarts >= 0
    starter.ready(common_environment(nproc))  # before signals are held: it may take a while, and Ctrl-C ends it
    with scratch.Scratch() as folder, Signals() as signals:
        folder.write_settings(settings)
        restarts = 0
        while True:
            outcome = _attempt(starter, nproc, folder.attempt(restarts), restarts, signals, grace, trust_status)
            if outcome.failure is None:
                return outcome.status
            final = outcome.failure.status in (*HOPELESS, STOPPED)  # STOPPED: a rank was asked to stop, by itself
            if final or restarts >= max_restarts or signals.stop:
                _say(failure.show(outcome.failure, outcome.unanswered))
                return outcome.failure.status
            restarts += 1
            _say([f"restart {restarts} of {max_restarts} after: {outcome.failure.line()}"])


class Rank:
    """One started rank. `status`: None while it runs, then its exit status, negative for a signal."""

    def __init__(self, number: int, pid: int, trust_status: bool) -> None:
        self.number = number
        self.trust_status = trust_status
        self.pid = pid
        self.status: int | None = None
        self.ended_ns = 0
        self.killed = False

    def collect(self) -> None:
        """Notes its end, if it has ended, and ends what it left running."""
        if self.status is not None or os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        self.ended_ns = time.time_ns()
        # before reaping: afterwards its number, and so the group's, could be somebody else's
        self._kill_group()
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        """Ends it and its loader workers now."""
        if self.status is None:
            self.killed = True
            self._kill_group()
            os.kill(self.pid, signal.SIGKILL)  # one that was just forked may not have a group of its own yet

    def stop(self) -> None:
        """Asks it to save and stop."""
        if self.status is None:
            os.kill(self.pid, signal.SIGTERM)

    def _kill_group(self) -> None:
        # nobody is left in it, or only a process that has changed its user
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def _attempt(
    starter: Starter, nproc: int, folder: Path, restarts: int, signals: Signals, grace: float, trust_status: bool
) -> Outcome:
    """Starts all ranks once and stays until the last one is gone."""
    ranks: list[Rank] = []
    try:
        for number in range(nproc):
            pid = starter.start(_environment(number, nproc, folder, restarts), signals)
            ranks.append(Rank(number, pid, trust_status))
        ended = _watch(ranks, folder, signals, grace)
    finally:
        _kill_all(ranks, signals)
    if not ended:
        _say(["left at once: what came after the last checkpoint is lost"])
        return Outcome(INTERRUPTED, None, [])
    if signals.stop and any(rank.status == -signal.SIGTERM and not rank.killed for rank in ranks):
        # a program that does not listen to the signal ends by it: as it was asked to
        return Outcome(INTERRUPTED if signals.interrupts else TERMINATED, None, [])
    return _judge(ranks, folder)


def common_environment(nproc: int) -> dict[str, str]:
    """The environment of a rank as far as it is the same for all: this process's own, without what another launcher
    left in it, with cores and interfaces as they are for `nproc` ranks on one machine."""
    environ = {
        name: value for name, value in os.environ.items() if name not in FOREIGN and not name.startswith(FOREIGN_PREFIX)
    }
    unless_set = {
        "OMP_NUM_THREADS": str(max(1, usable_cores() // nproc)),  # else each rank takes all cores
        "GLOO_SOCKET_IFNAME": "lo",  # one machine: nothing needs to listen on its network
        "NCCL_SOCKET_IFNAME": "lo",
    }
    return environ | {name: value for name, value in unless_set.items() if not environ.get(name)}


def _environment(rank: int, nproc: int, folder: Path, restarts: int) -> dict[str, str]:
    return common_environment(nproc) | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(nproc),
        "LOCAL_WORLD_SIZE": str(nproc),
        LOCAL_FOLDER: str(folder),
        LOCAL_PARENT: str(os.getpid()),
        LOCAL_BUILD: " ".join(startup.identity()),
        RESTARTS: str(restarts),
    }


def _watch(ranks: list[Rank], folder: Path, signals: Signals, grace: float) -> bool:
    """Returns once all ranks have ended by themselves or one failed and `grace` is over; False for a second SIGINT."""
    told = False
    deadline: float | None = None
    while True:
        for rank in ranks:
            rank.collect()
        if all(rank.status is not None for rank in ranks):
            return True
        if signals.interrupts > 1:
            return False
        if signals.stop and not told:
            told = True
            for rank in ranks:
                if not _is_done(rank, folder):  # a done rank has given its handlers back
                    rank.stop()
        now = time.monotonic()
        failed = [rank for rank in ranks if rank.status is not None and not _is_clean(rank, folder)]
        if failed and deadline is None:
            # one that was killed from outside is the cause: nothing that the others could say would add to it
            deadline = now if all(rank.status == -signal.SIGKILL for rank in failed) else now + grace
        if deadline is not None and now >= deadline:
            return True
        signals.wait(deadline)


def _kill_all(ranks: list[Rank], signals: Signals) -> None:
    """No rank is left when this returns, but one that the kernel does not let go of (a dead network file system)."""
    for rank in ranks:
        rank.kill()
    deadline = time.monotonic() + KILL_SECONDS
    while True:
        for rank in ranks:
            rank.collect()
        left = [rank for rank in ranks if rank.status is None]
        if not left:
            return
        if time.monotonic() >= deadline:
            pids = ", ".join(str(rank.pid) for rank in left)
            _say([f"these processes are stuck in the kernel and could not be killed: {pids}"])
            return
        signals.wait(deadline)


def _judge(ranks: list[Rank], folder: Path) -> Outcome:
    """The outcome of ranks that are all gone."""
    failures, unanswered = [], []
    for rank in ranks:
        if _is_clean(rank, folder):
            continue
        told = failure.read(scratch.failure_file(folder, rank.number))
        if told is not None:
            failures.append(told)
        elif rank.killed:
            unanswered.append(rank.number)
        else:
            assert rank.status is not None
            failures.append(failure.from_status(rank.number, rank.status, rank.ended_ns))
    if failures:
        cause = failure.first(failures)
        return Outcome(cause.status, cause, unanswered)
    assert not unanswered, "only a failed rank makes us kill the others"
    stopped = any(rank.status == STOPPED for rank in ranks)
    return Outcome(STOPPED if stopped else 0, None, [])


def _is_done(rank: Rank, folder: Path) -> bool:
    return scratch.done_file(folder, rank.number).exists()


def _is_clean(rank: Rank, folder: Path) -> bool:
    if rank.trust_status and rank.status == 0:
        return True
    return rank.status in CLEAN and _is_done(rank, folder)


def _say(lines: list[str]) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody reads: the exit status still tells
        print("\n".join(lines), file=sys.stderr, flush=True)
