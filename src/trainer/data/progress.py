"""One line on stderr about work that takes longer than expected."""

import sys
import time

QUIET_SECONDS = 2.0
_REDRAW_SECONDS = 0.2
_LINE_SECONDS = 10.0


class Progress:
    """Share and speed of a long pass over `total` bytes: nothing for two seconds, then a line redrawn on a terminal,
    or a line every ten seconds elsewhere."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._start = time.monotonic()
        self._next = self._start + QUIET_SECONDS
        self._terminal = sys.stderr.isatty()
        self._shown = False

    def add(self, count: int) -> None:
        """`count` more bytes are done."""
        self._done += count
        now = time.monotonic()
        if now >= self._next:
            self._next = now + (_REDRAW_SECONDS if self._terminal else _LINE_SECONDS)
            self._show(now)

    def close(self) -> None:
        """Ends the line, if one was shown."""
        if self._shown:
            self._show(time.monotonic())
            if self._terminal:
                print(file=sys.stderr, flush=True)

    def _show(self, now: float) -> None:
        self._shown = True
        share = min(1.0, self._done / self._total) if self._total else 1.0
        speed = self._done / max(1e-9, now - self._start) / 1e6
        text = f"{self._what}: {share:.0%} of {self._total / 1e6:.0f} MB, {speed:.1f} MB/s"
        if self._terminal:
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)
