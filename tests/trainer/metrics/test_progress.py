"""The progress line on a terminal, and plain lines elsewhere."""

import contextlib
import io
import os
import pty
import termios
import threading
import time
from collections.abc import Iterator

import pytest

from trainer.metrics.progress import Progress


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("trainer.metrics.progress.time.monotonic", clock)
    return clock


class Terminal:
    """A pseudo-terminal whose output can be read."""

    def __init__(self) -> None:
        self.reader, writer = pty.openpty()
        self.stream = os.fdopen(writer, "w")
        self.data = b""

    def resize(self, columns: int) -> None:
        termios.tcsetwinsize(self.reader, (24 if columns else 0, columns))

    def output(self) -> str:
        """All that was written; call it now and then: nobody else reads, and a full terminal blocks its writer."""
        self.stream.flush()
        os.set_blocking(self.reader, False)
        try:
            while block := os.read(self.reader, 65536):
                self.data += block
        except (BlockingIOError, OSError):
            pass
        return self.data.decode()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.stream.close()
    os.close(terminal.reader)


def run(progress: Progress, clock: Clock, first: int, last: int, seconds: float = 0.1) -> None:
    for step in range(first, last + 1):
        clock.now += seconds
        progress.update(step, 3.21, 1230, 1e-3)


def test_lines_have_step_loss_rate_and_time_left(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(300, 0, stream, every=10)
    clock.now += 30  # starting up is not part of the rate
    run(progress, clock, 1, 20)
    assert stream.getvalue().splitlines() == [
        "step 10/300 loss 3.21 lr 1.0e-3 12.3k tokens/s 0:29 left",
        "step 20/300 loss 3.21 lr 1.0e-3 12.3k tokens/s 0:28 left",
    ]


def test_time_left_is_right_after_a_resume(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(1000, 900, stream, every=10, unit="samples")
    run(progress, clock, 901, 910, seconds=2.0)
    assert stream.getvalue() == "step 910/1000 loss 3.21 lr 1.0e-3 615 samples/s 3:00 left\n"


def test_the_rate_is_that_of_the_recent_past(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(1000, 0, stream, every=500)
    run(progress, clock, 1, 460, seconds=10.0)
    run(progress, clock, 461, 500, seconds=1.0)
    assert "1.23k tokens/s 8:20 left" in stream.getvalue()


def test_the_first_and_only_update_has_a_rate(clock: Clock) -> None:
    stream = io.StringIO()
    run(Progress(5, 4, stream, every=10), clock, 5, 5, seconds=0.5)
    assert stream.getvalue() == "step 5/5 loss 3.21 lr 1.0e-3 2.46k tokens/s 0:00 left\n"
    run(Progress(5, 0, stream, every=1), clock, 1, 1, seconds=0.5)
    assert "step 1/5 loss 3.21 lr 1.0e-3 2.46k tokens/s 0:02 left" in stream.getvalue()


def test_extra_numbers_and_those_that_are_not_finite_are_shown(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(10, 0, stream, every=1)
    progress.update(1, float("nan"), 5, 2.5e-05, {"loss_scale": 65536.0})
    assert "loss nan lr 2.5e-5 loss_scale 6.55e+04" in stream.getvalue()


def test_notes_are_lines_of_their_own() -> None:
    stream = io.StringIO()
    Progress(10, 0, stream, mode="lines").note("evaluation loss 2.1")
    assert stream.getvalue() == "evaluation loss 2.1\n"


def test_none_shows_nothing(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(10, 0, stream, mode="none", every=1)
    run(progress, clock, 1, 10)
    progress.note("a note")
    progress.close()
    assert stream.getvalue() == ""


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="auto, lines or none"):
        Progress(10, 0, mode="bar")


@pytest.mark.parametrize("columns", [0, 100])
def test_a_terminal_has_one_line_that_is_redrawn(clock: Clock, terminal: Terminal, columns: int) -> None:
    terminal.resize(columns)
    before = threading.active_count()
    progress = Progress(300, 100, terminal.stream)
    run(progress, clock, 101, 150)
    terminal.output()
    progress.note("evaluation loss 2.1")
    for first in range(151, 300, 50):
        run(progress, clock, first, first + 49)
        terminal.output()
    progress.close()
    output = terminal.output()
    assert threading.active_count() == before
    assert "step 200/300 |" in output
    assert "loss 3.21 lr 1.0e-3 12.3k tokens/s 0:10 left" in output
    assert "\revaluation loss 2.1\r\n" in output
    lines = [line for line in output.split("\n") if line.strip()]
    assert len(lines) == 2, "the note, and the progress line as it was at the end"
    assert lines[1].rsplit("\r", 2)[-2].startswith("step 300/300 |")


def test_a_narrow_terminal_has_the_facts_without_the_bar(clock: Clock, terminal: Terminal) -> None:
    terminal.resize(70)
    progress = Progress(20, 0, terminal.stream)
    run(progress, clock, 1, 10)
    assert "step 10/20 loss 3.21 lr 1.0e-3 12.3k tokens/s 0:01 left" in terminal.output()
    terminal.resize(30)
    run(progress, clock, 11, 15)
    assert max(len(line) for line in terminal.output().split("\r")) < 70
    run(progress, clock, 16, 20)
    progress.close()
    assert "step 20/20" in terminal.output()


def test_a_terminal_is_not_redrawn_at_every_update(clock: Clock, terminal: Terminal) -> None:
    progress = Progress(10_000, 0, terminal.stream)
    run(progress, clock, 1, 1000, seconds=0.001)
    progress.close()
    assert terminal.output().count("\r") < 30


def test_a_long_evaluation_is_counted_on_a_terminal(clock: Clock, terminal: Terminal) -> None:
    terminal.resize(100)
    progress = Progress(20, 0, terminal.stream)
    run(progress, clock, 1, 10)
    for done in range(0, 400, 40):
        progress.evaluating(done, 400)
        clock.now += 1
    progress.evaluating(400, 400)
    output = terminal.output()
    assert "evaluating 200/400 samples 0:05 left" in output
    assert output.rstrip().endswith("0:01 left"), "the last update is shown again"
    stream = io.StringIO()
    for done in (0, 40, 400):
        Progress(20, 0, stream).evaluating(done, 400)
    assert stream.getvalue() == ""


def test_lines_may_be_asked_for_on_a_terminal(clock: Clock, terminal: Terminal) -> None:
    progress = Progress(10, 0, terminal.stream, mode="lines", every=10)
    run(progress, clock, 1, 10)
    progress.close()
    assert terminal.output() == "step 10/10 loss 3.21 lr 1.0e-3 12.3k tokens/s 0:00 left\r\n"


def test_a_reader_that_went_away_does_not_end_the_run(clock: Clock) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    progress = Progress(100, 0, stream, every=1)
    run(progress, clock, 1, 100)
    progress.note("still here")
    with pytest.raises(BrokenPipeError):
        stream.close()
    closed = io.StringIO()
    closed.close()
    run(Progress(10, 0, closed, mode="lines", every=1), clock, 1, 10)


def test_a_terminal_that_went_away_does_not_end_the_run(clock: Clock) -> None:
    reader, writer = pty.openpty()
    stream = os.fdopen(writer, "w")
    progress = Progress(100, 0, stream)
    run(progress, clock, 1, 10)
    os.close(reader)
    run(progress, clock, 11, 100)
    progress.note("still here")
    progress.close()
    del progress
    with contextlib.suppress(OSError):
        stream.close()


def test_a_stream_of_few_letters_gets_what_it_can_take(clock: Clock) -> None:
    data = io.BytesIO()
    progress = Progress(10, 0, io.TextIOWrapper(data, encoding="ascii"), every=1)
    progress.note("naïve")
    progress.note("after")
    assert data.getvalue() == b"na\\xefve\nafter\n"


def test_an_update_that_is_not_shown_is_cheap() -> None:
    progress = Progress(10**9, 0, io.StringIO(), every=10**8)
    best, step = 1.0, 0
    for _ in range(10):
        begin = time.thread_time()
        for _ in range(1000):
            step += 1
            progress.update(step, 3.21, 1000, 1e-3)
        best = min(best, (time.thread_time() - begin) / 1000)
    assert best < 5e-6
