"""A request from outside to stop: which signals make one, and a flag that the training loop reads between updates."""

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

# SIGHUP: the terminal was closed; SIGUSR1: what schedulers send as a warning
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
INTERRUPTED = 130
NOTICE = "stopping after this update; press Ctrl-C again to leave at once\n"


def handled() -> list[signal.Signals]:
    """Return the signals that ask this process to stop: all of `SIGNALS`, except for SIGHUP under nohup."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in SIGNALS if not (nohup and number == signal.SIGHUP)]


def drop_dead_output() -> None:
    """Let standard output and error go nowhere where nobody can read them any more.

    After a terminal was closed every line written there would be an error, and the checkpoint would be lost with it.
    """
    for number in (1, 2):
        with contextlib.suppress(OSError):
            poll = select.poll()
            poll.register(number, 0)
            if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, number)
                os.close(nothing)


class StopRequest:
    """Turns the signals of `SIGNALS` into a flag. Nothing is saved inside a handler: that would be in mid-update.

    `requested`: whether to stop; `signal`: name of the first one that asked. A second SIGINT ends the process with 130;
    the others may come as often as they like. `quiet`: no notice on stderr, for every rank but 0.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.requested = False
        self.signal = ""
        self._interrupts = 0
        self._process = 0
        self._raising = False
        self._previous: dict[signal.Signals, Any] = {}
        self._held: set[int] = set()

    def install(self) -> None:
        """Takes over the signals, also those that have been held back since the rank was started. Main thread only."""
        assert not self._previous, "installed twice"
        self._process = os.getpid()
        for number in handled():
            self._previous[number] = signal.signal(number, self._handle)
        self._held = set(signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)).intersection(SIGNALS)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Where there is no update to finish: a request raises KeyboardInterrupt inside, also one that came before."""
        self._raising = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._raising = False

    def uninstall(self) -> None:
        """Gives the signals back to whoever had them before."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self._held)
        for number, handler in self._previous.items():
            if handler is not None:  # None: a handler that Python does not know of, and cannot put back
                signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # a forked loader worker, which Ctrl-C reaches too: it ends when its rank does
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                os._exit(INTERRUPTED)
        if self.requested:
            return
        self.requested = True
        self.signal = signal.Signals(number).name
        drop_dead_output()
        if self._raising:
            raise KeyboardInterrupt
        if not self.quiet:
            # not through sys.stderr, which the interrupted code may be in the middle of writing to
            with contextlib.suppress(OSError):
                os.write(2, (("\n" if os.isatty(2) else "") + NOTICE).encode())
