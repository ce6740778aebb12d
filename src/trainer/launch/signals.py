"""Signals of a process that watches others, as something to wait for."""

import os
import select
import signal
import time
from typing import Any

from trainer.launch.stop import drop_dead_output, handled


class Signals:
    """Signals as something to wait for. `stop`: a stop was asked for; `interrupts`: how often by SIGINT."""

    def __enter__(self) -> "Signals":
        self.stop = False
        self.interrupts = 0
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        numbers = [*handled(), signal.SIGCHLD]
        self._previous: dict[signal.Signals, Any] = {number: signal.signal(number, _noted) for number in numbers}
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        return self

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def leave_to_parent(self) -> None:
        """In a process forked from this one: signals are as in a process that was just started, but held back as they
        are now, and the parent's are no longer ours."""
        signal.set_wakeup_fd(-1)
        for number in self._previous:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(self._read)
        os.close(self._write)

    def wait(self, until: float | None) -> None:
        """Sleeps until a signal comes (also that a child has ended) or the monotonic clock reads `until`."""
        timeout = None if until is None else max(0.0, until - time.monotonic())
        if not select.select([self._read], [], [], timeout)[0]:
            return
        for number in os.read(self._read, 4096):
            if number == signal.SIGINT:
                self.interrupts += 1
            if number != signal.SIGCHLD and not self.stop:
                drop_dead_output()
                self.stop = True


def _noted(number: int, frame: object) -> None:
    """The wake-up descriptor has the number; without a handler Python would not write it."""
