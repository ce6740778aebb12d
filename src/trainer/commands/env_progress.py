"""How far a command is, on standard error: lines, or one line that is drawn again on a terminal."""

import sys
import time

EVERY_SECONDS = 0.2
EVERY_SECONDS_IN_LINES = 5.0
MEBIBYTE = 1 << 20


class Bar:
    """Called with the bytes that are done and that there are."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._terminal = sys.stderr.isatty()
        self._next = time.monotonic() + (0.0 if self._terminal else EVERY_SECONDS_IN_LINES)
        self._drawn = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (EVERY_SECONDS if self._terminal else EVERY_SECONDS_IN_LINES)
        share = 100 * done // max(total, 1)
        text = f"{self._what}: {done / MEBIBYTE:,.0f} of {total / MEBIBYTE:,.0f} MiB, {share} %"
        sys.stderr.write(f"\r\x1b[K{text}" if self._terminal else f"{text}\n")
        sys.stderr.flush()
        self._drawn = self._terminal

    def end(self) -> None:
        """Clears the line."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class Steps:
    """Called with what is done next; tells with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:6.1f} s] {text}", file=sys.stderr, flush=True)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began
