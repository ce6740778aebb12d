"""A request from outside to stop: a flag that the training loop reads between updates."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
INTERRUPTED = 130
NOTICE = "stopping after this update; interrupt once more to leave at once\n"


class StopRequest:
    """Turns SIGTERM, SIGINT and SIGUSR1 into a flag. Nothing is saved inside a handler: that would be in mid-update.

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
        for number in SIGNALS:
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
        if self._raising:
            raise KeyboardInterrupt
        if not self.quiet:
            # not through sys.stderr, which the interrupted code may be in the middle of writing to
            with contextlib.suppress(OSError):
                os.write(2, (("\n" if os.isatty(2) else "") + NOTICE).encode())
