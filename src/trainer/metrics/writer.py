"""Metrics as JSON lines: a line for each update, in order, each step once, also over kills and resumes.

    {"step": 7, "time": 1764571059.123, "loss": 2.31, "lr": 0.001}
    {"step": 8, "time": 1764571059.351, "loss": null, "lr": 0.001, "nonfinite": ["loss"]}
    {"event": "evaluation", "step": 8, "time": 1764571060.02, "loss": 2.4}

Strict JSON (RFC 8259): a number that is not finite is null, and its name is listed in `nonfinite`. `step` is the number
of updates so far and `time` the Unix time in seconds, on every line. Lines without `event` are updates, one per step.
"""

import errno
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from trainer.errors import UserError

_FLUSH_SECONDS = 1.0
_BLOCK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 24  # what is longer was never written here: a hole left by a power cut
_encode = json.JSONEncoder(allow_nan=False, separators=(", ", ": ")).encode


class Metrics(Protocol):
    """What `MetricsWriter` and `NullWriter` have in common."""

    def write(self, *, step: int, **values: Any) -> None: ...

    def event(self, event: str, *, step: int, **values: Any) -> None: ...

    def flush(self, sync: bool = False) -> None: ...

    def close(self) -> None: ...


class NullWriter:
    """For ranks other than 0: takes everything, writes nothing."""

    def write(self, *, step: int, **values: Any) -> None:
        """Nothing."""

    def event(self, event: str, *, step: int, **values: Any) -> None:
        """Nothing."""

    def flush(self, sync: bool = False) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class MetricsWriter:
    """Appends to a metrics file; the only writer of that file.

    Lines are kept back for a second at most while updates come, so call `flush` before a checkpoint is committed: the
    steps it holds will not be done again. A full disk or a file that cannot be written raises UserError from the write
    that flushes, from `flush` or from `close`: a run whose numbers are lost in silence is worse than one that stops.
    """

    def __init__(self, path: Path, resume_step: int | None) -> None:
        """Opens `path`. What is there after `resume_step` (those updates come again) and a torn last line are cut away.

        With `resume_step` None or 0 the run starts anew: a file that is there is kept once, as `<name>.old`.
        """
        self.path = Path(path)
        self._lines: list[str] = []
        self._due = time.monotonic() + _FLUSH_SECONDS
        self._file: int | None = None
        self._step = resume_step or 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not resume_step and self.path.exists() and self.path.stat().st_size:
                self.path.replace(self.path.with_name(self.path.name + ".old"))
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            last = _cut(self._file, self._step) if resume_step else 0
        except OSError as error:
            self._abandon()
            raise self._refused(error) from error
        if last < self._step:
            # lines that never reached the disk (a power cut): said, because nothing can bring them back
            self.event("missing", step=self._step, first=last + 1, last=self._step)

    def write(self, *, step: int, **values: Any) -> None:
        """Write the line of one update. Values are what JSON holds: numbers, strings, None, and lists and dictionaries
        of them."""
        assert step == self._step + 1, f"step {step} after {self._step}"
        self._step = step
        self._add({"step": step, "time": _now(), **values})

    def event(self, event: str, *, step: int, **values: Any) -> None:
        """Write a line about something other than an update, after `step` updates."""
        self._add({"event": event, "step": step, "time": _now(), **values})

    def flush(self, sync: bool = False) -> None:
        """Hands every whole line to the operating system in one write; with `sync` also to the disk."""
        self._due = time.monotonic() + _FLUSH_SECONDS
        if self._file is None:
            self._lines.clear()
            return
        try:
            if self._lines:
                self._append("".join(self._lines).encode())
                self._lines.clear()
            if sync:
                os.fsync(self._file)
        except OSError as error:
            self._abandon()
            raise self._refused(error) from error

    def close(self) -> None:
        """Flushes and closes; a second call does nothing, nor does one after a failed write."""
        try:
            self.flush()
        finally:
            self._abandon()

    def _add(self, record: dict[str, Any]) -> None:
        try:
            text = _encode(record)
        except ValueError:  # NaN or an infinity somewhere: the rare case pays, not the common one
            names: list[str] = []
            record = {name: _finite(value, name, names) for name, value in record.items()}
            text = _encode({**record, "nonfinite": names})
        self._lines.append(text + "\n")
        if time.monotonic() >= self._due:
            self.flush()

    def _append(self, data: bytes) -> None:
        """All of `data` or none of it: what a full disk cut off is taken back."""
        assert self._file is not None
        status = os.fstat(self._file)
        if status.st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "it was removed during the run")
        before = status.st_size
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:] if written else data)
        except OSError:
            if written:
                os.ftruncate(self._file, before)
            raise

    def _abandon(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _refused(self, error: OSError) -> UserError:
        what = f"cannot write metrics to {self.path}: {error.strerror}"
        if error.errno == errno.ENOENT:
            return UserError(what, "Leave the run folder in place while a run uses it; start again to continue.")
        return UserError(what, "Free space and make the folder writable, or choose another one with --run.folder.")


def _now() -> float:
    return round(time.time(), 3)


def _finite(value: Any, name: str, names: list[str]) -> Any:
    """`value` with null for what is not finite; appends the dotted names of those to `names`."""
    if isinstance(value, float) and not math.isfinite(value):
        names.append(name)
        return None
    if isinstance(value, dict):
        return {key: _finite(each, f"{name}.{key}", names) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each, f"{name}.{index}", names) for index, each in enumerate(value)]
    return value


def _cut(file: int, resume_step: int) -> int:
    """Truncates after the last line that a run resumed at `resume_step` keeps; returns the last step that is kept.

    Searches from the end, so the cost is that of what is cut, and no more than a block and a line is in memory.
    """
    size = os.fstat(file).st_size
    end, last = _find_anchor(file, size, resume_step)
    keep = end
    for line in _lines(file, end, size):
        record = _parse(line)
        if record is None or "event" not in record or record["step"] > resume_step:
            break
        keep += len(line)
    if keep < size:
        os.ftruncate(file, keep)
        os.fsync(file)
    return last


def _find_anchor(file: int, size: int, resume_step: int) -> tuple[int, int]:
    """Offset behind the last whole line of an update up to `resume_step`, and its step; (0, 0) where there is none."""
    tail = b""  # of the line that begins in an earlier block
    position = size
    while position > 0:
        start = max(0, position - _BLOCK_BYTES)
        data = os.pread(file, position - start, start) + tail
        first = 0 if start == 0 else data.find(b"\n") + 1 or len(data)  # where the first whole line begins
        end = len(data)
        while end > first:
            begin = max(first, data.rfind(b"\n", first, end - 1) + 1)
            record = _parse(data[begin:end])
            if record is not None and "event" not in record and record["step"] <= resume_step:
                return start + end, int(record["step"])
            end = begin
        tail = data[: min(first, _LONGEST_LINE)]
        position = start
    return 0, 0


def _lines(file: int, offset: int, size: int) -> Iterator[bytes]:
    """Lines from `offset` on, with their line ends, which a torn or endless one lacks."""
    rest = b""
    while offset < size:
        block = os.pread(file, _BLOCK_BYTES, offset)
        offset += len(block)
        *whole, rest = (rest + block).splitlines(keepends=True)
        yield from whole
        if len(rest) > _LONGEST_LINE:
            break
    yield rest


def _parse(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and type(record.get("step")) is int else None
