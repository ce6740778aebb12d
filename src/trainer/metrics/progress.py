"""How far a run is: one redrawn line on a terminal, plain lines elsewhere.

step 20/300 loss 3.21 lr 1.0e-3 12.3k tokens/s 0:41 left
"""

import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, SupportsFloat, TextIO

from trainer.metrics.summary import format_count, format_duration

if TYPE_CHECKING:
    from tqdm import tqdm

_REDRAW_SECONDS = 0.1
_PATIENCE_SECONDS = 0.5
_WIDTH = 80  # of a terminal that does not know its own; a narrower one has no room for a bar
# the rate is that of the last few marks, which lie at least so far apart
_MARK_SECONDS = 0.5
_MARKS = 20


class Progress:
    """Shows the run's progress on `stream` (standard error).

    `mode`: auto draws a line on a terminal and writes lines elsewhere; lines; none shows nothing, not even notes.
    `every`: updates between lines. `unit`: what `items` of an update are. A stream that can no longer be written to is
    given up: it is no reason to end a run.
    """

    def __init__(
        self,
        total_steps: int,
        start_step: int,
        stream: TextIO | None = None,
        *,
        mode: str = "auto",
        every: int = 10,
        unit: str = "tokens",
    ) -> None:
        if mode not in ("auto", "lines", "none"):
            raise ValueError(f"mode must be auto, lines or none, not {mode!r}")
        self.total = total_steps
        self.every = every
        self.unit = unit
        self._stream = sys.stderr if stream is None else stream
        self._shown = mode != "none"
        self._step = start_step
        self._items = 0
        now = time.monotonic()
        # (time, step, items so far); the first is replaced by the first update's end: starting up is no rate
        self._marks: deque[tuple[float, int, int]] = deque([(now, start_step, 0)], maxlen=_MARKS)
        self._before = self._marks[0]
        self._started = False
        self._next_mark = 0.0
        self._next_draw = 0.0
        self._last = ""  # what was drawn of the last update
        self._evaluation_began = 0.0
        self._bar: tqdm[Any] | None = None
        if mode == "auto" and self._stream.isatty():
            self._bar = _make_bar(total_steps, start_step, self._stream)

    def update(
        self,
        step: int,
        loss: SupportsFloat,
        items: int,
        lr: float,
        extra: Mapping[str, SupportsFloat] | None = None,
    ) -> None:
        """After update number `step`, which took `items` tokens or samples over all ranks at the learning rate `lr`.

        `loss` and `extra` are read only when they are shown, so they may be tensors on a device.
        """
        if not self._shown:
            return
        self._step = step
        self._items += items
        now = time.monotonic()
        if now >= self._next_mark:
            self._mark(now)
        if self._bar is not None:
            if now >= self._next_draw or step == self.total:
                self._next_draw = now + _REDRAW_SECONDS
                self._last = self._facts(now, loss, lr, extra)
                self._draw(self._last)
        elif step % self.every == 0 or step == self.total:
            self._print(f"step {step}/{self.total} {self._facts(now, loss, lr, extra)}")

    def evaluating(self, done: int, samples: int) -> None:
        """During an evaluation: on a terminal, how many of its samples are done and the time left."""
        if self._bar is None:
            return
        now = time.monotonic()
        if done == 0:
            self._evaluation_began = now
            self._next_draw = now + _PATIENCE_SECONDS  # a short evaluation is not shown
        if done >= samples:
            self._draw(self._last)
        elif now >= self._next_draw and done:
            self._next_draw = now + _REDRAW_SECONDS
            left = (now - self._evaluation_began) / done * (samples - done)
            self._draw(f"evaluating {done}/{samples} samples {format_duration(left)} left")

    def note(self, text: str) -> None:
        """A line of its own, above the progress line where there is one."""
        if not self._shown:
            return
        if self._bar is None:
            self._print(text)
            return
        try:
            self._bar.write(text, file=self._stream)
        except (OSError, ValueError):
            self._give_up()

    def close(self) -> None:
        """Leaves the last state on the terminal and ends the line. Nothing is shown any more, but notes."""
        if self._bar is not None:
            bar, self._bar = self._bar, None
            try:
                bar.n = self._step
                bar.close()
            except (OSError, ValueError):
                self._shown = False

    def _mark(self, now: float) -> None:
        if not self._started:
            self._started = True
            if self._step < self.total:
                self._before = self._marks.pop()
        self._marks.append((now, self._step, self._items))
        self._next_mark = now + _MARK_SECONDS

    def _facts(self, now: float, loss: SupportsFloat, lr: float, extra: Mapping[str, SupportsFloat] | None) -> str:
        facts = [f"loss {_short(float(loss))}", f"lr {_scientific(lr)}"]
        if extra:
            facts += [f"{name} {_short(float(value))}" for name, value in extra.items()]
        since, first_step, first_items = self._marks[0]
        if self._step == first_step:  # only one update so far: better its own slow rate than none
            since, first_step, first_items = self._before
        seconds = max(now - since, 1e-9)
        facts.append(f"{format_count((self._items - first_items) / seconds)} {self.unit}/s")
        left = (self.total - self._step) * seconds / max(1, self._step - first_step)
        facts.append(f"{format_duration(left)} left")
        return " ".join(facts)

    def _draw(self, facts: str) -> None:
        assert self._bar is not None
        try:
            self._bar.n = self._step
            _fit(self._bar, self._stream)
            self._bar.set_description_str(facts, refresh=False)
            self._bar.refresh()
        except (OSError, ValueError):
            self._give_up()

    def _print(self, text: str) -> None:
        try:
            try:
                self._stream.write(text + "\n")
            except UnicodeEncodeError:
                self._stream.write(text.encode("ascii", "backslashreplace").decode() + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: closed
            self._give_up()

    def _give_up(self) -> None:
        self._shown = False
        if self._bar is not None:
            self._bar.disable = True  # or it would write once more when it is collected
            self._bar = None


def _make_bar(total: int, start: int, stream: TextIO) -> "tqdm[Any]":
    import threading

    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]  # generic in the stubs only
        # no watching thread, and no lock from multiprocessing: only this thread draws, when it says so
        monitor_interval = 0

    Bar.set_lock(threading.RLock())
    # delay: nothing is drawn before the first update
    bar = Bar(total=total, initial=start, file=stream, ncols=_WIDTH, nrows=24, mininterval=0, delay=1e-9)
    _fit(bar, stream)
    return bar


def _fit(bar: "tqdm[Any]", stream: TextIO) -> None:
    """To the terminal's present width; a pseudo-terminal whose size nobody set says 0, and tqdm would draw nothing."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or _WIDTH
    except OSError:
        columns = _WIDTH
    bar.ncols = columns - 1
    graph = " |{bar:10}| " if columns >= _WIDTH else " "
    bar.bar_format = "step {n_fmt}/{total_fmt}" + graph + "{desc}"


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) >= 1000 or 0 < abs(value) < 0.001 else f"{value:.4g}"


def _scientific(value: float) -> str:
    """1.0e-3: Python writes two digits of exponent, which nobody reads."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"
