"""Scalars as TensorBoard event files, by TensorBoard's own writer (the extra `tensorboard`)."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer.errors import UserError


class EventWriter:
    """Writes an event file into `folder`. Import of TensorBoard costs half a second, so only who asks for it pays.

    With `resume_step`, readers are told to drop what earlier files hold after that step, as it comes again.
    UserError: TensorBoard is missing (status 2), or the folder cannot be written.
    """

    def __init__(self, folder: Path, resume_step: int | None) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ModuleNotFoundError as error:
            raise UserError(
                f"log.tensorboard is true, but {error.name} is not installed",
                "Install the extra `tensorboard` (`uv sync --extra tensorboard`), or set log.tensorboard to false.",
                2,
            ) from error
        self._events = event_pb2
        self._summaries = summary_pb2
        self._folder = folder
        try:
            self._writer = EventFileWriter(str(folder), max_queue_size=100, flush_secs=10)
        except OSError as error:
            raise self._refused(error) from error
        if resume_step is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._add(event_pb2.Event(wall_time=time.time(), step=resume_step + 1, session_log=start))

    def scalars(self, step: int, values: Mapping[str, Any]) -> None:
        """Write one event with all numbers among the `values` of a step; what a dictionary holds has its name before a
        slash."""
        summary = self._summaries.Summary(
            value=[self._summaries.Summary.Value(tag=name, simple_value=value) for name, value in _numbers(values)]
        )
        self._add(self._events.Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        """Flushes and closes; ends the writing thread."""
        try:
            self._writer.close()
        except OSError as error:
            raise self._refused(error) from error

    def _add(self, event: object) -> None:
        try:
            self._writer.add_event(event)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> UserError:
        return UserError(
            f"cannot write TensorBoard events to {self._folder}: {error.strerror or error}",
            "Free space and make the folder writable, or choose another one with --run.folder.",
        )


def _numbers(values: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{group}{name}/")
        elif isinstance(value, int | float):
            yield f"{group}{name}", float(value)
