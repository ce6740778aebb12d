"""Samples in the order of the run, as the micro-batches of one rank. The only state is one cursor."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer.data.order import permuted_array
from trainer.data.pinning import pinned
from trainer.data.source import Batch, Source
from trainer.data.workers import Workers
from trainer.errors import UserError

# Positions of the order computed at a time: long enough for vector speed, short enough (0.6 ms) for nobody to notice.
_AHEAD = 4096


class Update(NamedTuple):
    """What one rank needs for one optimizer update.

    `micro_batches` are (batch, real samples in it), equally many on all ranks; where the samples do not reach, the
    batch is a dummy with 0 real samples, whose loss counts nothing but keeps collectives in step. `samples` are those
    of all ranks, `cursor` is where the next update starts.
    """

    micro_batches: list[tuple[Batch, int]]
    samples: int
    epoch: int
    cursor: int


class Task(NamedTuple):
    """What one rank fetches for one update: (sample numbers, real samples) of each micro-batch."""

    parts: list[tuple[NDArray[np.int64], int]]
    samples: int
    epoch: int
    cursor: int


class Share(NamedTuple):
    """Micro-batches of one rank out of `samples` in a row: position of each first sample, and how many."""

    offsets: NDArray[np.int64]
    bounds: list[tuple[int, int, int]]


def share(samples: int, micro: int, dp_rank: int, dp_size: int) -> Share:
    """Item k of micro-batch j of a rank has position (j * dp_size + rank) * micro + k.

    `bounds` are (start, stop, real samples) in `offsets`, one each of the ceil(samples / (micro * dp_size))
    micro-batches; one that lies past the end gets position 0 and 0 real samples.
    """
    offsets: list[int] = []
    bounds = []
    for first in range(dp_rank * micro, _rounds(samples, micro, dp_size) * dp_size * micro, dp_size * micro):
        real = max(0, min(micro, samples - first))
        start = len(offsets)
        offsets += range(first, first + real) if real else [0]
        bounds.append((start, len(offsets), real))
    return Share(np.array(offsets, np.int64), bounds)


class Loader:
    """Updates of a run, from any cursor on.

    The cursor is the number of samples that all ranks together have consumed since the run began. With n' samples an
    epoch, cursor c stands at position c % n' of epoch c // n'; batches do not span epochs, so the last one of an epoch
    is shorter, or with `last` = "drop" left out (n' is then a multiple of `global_batch`, and which samples are left
    out differs from epoch to epoch). Which samples an update holds depends on nothing but seed and cursor, so a run may
    go on with another number of ranks, micro-batch or workers.

    `micro_batch` 0 is a rank's whole share. `epochs` None is without end. `workers` processes fetch ahead and stay for
    the whole run, until `close`; samples they have fetched count only when they are handed over. `pin` is for CUDA.

    Attributes: `samples_per_epoch`, `updates_per_epoch`, `dropped_per_epoch` (samples left out by "drop").

    Raises UserError (status 2) where the batch is smaller than the number of ranks, or nothing is left to train on.
    """

    def __init__(
        self,
        source: Source,
        *,
        global_batch: int,
        micro_batch: int = 0,
        dp_rank: int = 0,
        dp_size: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        last: str = "keep",
        workers: int = 0,
        epochs: int | None = None,
        pin: bool = False,
    ) -> None:
        if global_batch < dp_size:
            raise UserError(
                f"batch.size = {global_batch} is less than the {dp_size} ranks that share it",
                f"Set batch.size to {dp_size} or more, or start fewer ranks.",
                2,
            )
        self._source = source
        self._batch = global_batch
        self._micro = micro_batch or -(-global_batch // dp_size)
        self._rank, self._ranks = dp_rank, dp_size
        self._seed = seed
        self._shuffle = shuffle
        self._epochs = epochs
        self._pin = pin
        self._workers = Workers(source, workers, pin=pin) if workers else None
        samples = len(source)
        self.dropped_per_epoch = samples % global_batch if last == "drop" else 0
        self.samples_per_epoch = samples - self.dropped_per_epoch
        self.updates_per_epoch = -(-self.samples_per_epoch // global_batch)
        if not self.samples_per_epoch:
            raise UserError(
                f'the training data has {samples} samples, and batch.last = "drop" drops them all: '
                f"an update takes {global_batch}",
                'Set a smaller batch.size, or set batch.last to "keep".',
                2,
            )

    def updates(self, cursor: int = 0) -> Iterator[Update]:
        """The updates from `cursor` to the end of the last epoch. With workers, one iteration at a time."""
        tasks = self._tasks(cursor)
        if self._workers is not None:
            yield from self._fetched_by(self._workers, cursor)
            return
        fetch, pin = self._source.fetch, self._pin
        for task in tasks:
            batches = []
            for indices, real in task.parts:
                batch = fetch(indices, task.epoch)
                batches.append((pinned(batch) if pin else batch, real))
            yield Update(batches, task.samples, task.epoch, task.cursor)

    def close(self) -> None:
        """Ends the workers."""
        if self._workers is not None:
            self._workers.close()

    def _fetched_by(self, workers: Workers, cursor: int) -> Iterator[Update]:
        stream = ((indices, task.epoch) for task in self._tasks(cursor) for indices, _ in task.parts)
        workers.start(stream)
        for task in self._tasks(cursor):
            batches = [(workers.next(), real) for _, real in task.parts]
            yield Update(batches, task.samples, task.epoch, task.cursor)

    def _tasks(self, cursor: int) -> Iterator[Task]:
        """What to fetch for each update."""
        whole = share(self._batch, self._micro, self._rank, self._ranks)
        at_once = max(1, _AHEAD // len(whole.offsets))
        while True:
            epoch, position = divmod(cursor, self.samples_per_epoch)
            if self._epochs is not None and epoch >= self._epochs:
                return
            left = self.samples_per_epoch - position
            if left < self._batch:
                part, count, samples = share(left, self._micro, self._rank, self._ranks), 1, left
            else:
                part, count, samples = whole, min(at_once, left // self._batch), self._batch
            starts = position + samples * np.arange(count)
            for row in self._ordered((starts[:, None] + part.offsets).ravel(), epoch).reshape(count, -1):
                cursor += samples
                parts = [(row[start:stop], real) for start, stop, real in part.bounds]
                yield Task(parts, samples, epoch, cursor)

    def _ordered(self, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        if not self._shuffle:
            return positions
        return permuted_array(positions, len(self._source), self._seed, epoch)


def evaluation_batches(
    source: Source, *, micro_batch: int, dp_rank: int = 0, dp_size: int = 1, limit: int = 0, pin: bool = False
) -> Iterator[tuple[Batch, int]]:
    """One rank's (batch, real samples) of the first `limit` samples (0: all), in order, cut as in `share`.

    Over all ranks every sample comes exactly once, and all ranks get equally many batches: what is left over are
    dummies (sample 0) with 0 real samples. So sums over ranks do not depend on their number.
    """
    samples = min(limit, len(source)) if limit else len(source)
    step = micro_batch * dp_size
    for first in range(dp_rank * micro_batch, _rounds(samples, micro_batch, dp_size) * step, step):
        real = max(0, min(micro_batch, samples - first))
        batch = source.fetch(range(first, first + real) if real else [0])
        yield (pinned(batch) if pin else batch), real


def _rounds(samples: int, micro: int, dp_size: int) -> int:
    return -(-samples // (micro * dp_size))
