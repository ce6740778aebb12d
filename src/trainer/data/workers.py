"""Loader processes that fetch ahead, through torch's DataLoader."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from trainer.data.source import Batch, Source
from trainer.errors import UserError

_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


Request = tuple[NDArray[np.int64], int]


class WorkerTraceback(Exception):
    """The traceback of an exception in a worker, as text: the cause of the error raised in the rank."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Failure(NamedTuple):
    what: str
    fix: str
    status: int
    text: str


class _Fetcher(Dataset[Any]):
    """Runs in the worker: a request in, a batch (or why there is none) out."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getitem__(self, request: Request) -> Batch | _Failure:
        try:
            return self._source.fetch(request[0], request[1])
        except UserError as error:
            return _Failure(error.what, error.fix, error.status, traceback.format_exc())


class _Stream(Sampler[Request]):
    """The requests, in order."""

    def __init__(self, requests: Iterator[Request]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[Request]:
        return self._requests


class Workers:
    """`count` processes that answer requests in order, two requests ahead each.

    They are forked where the system can, ignore the signals that stop a run, so that the rank has its data until it has
    saved, and end with `close`, at exit, or when the rank dies.
    """

    def __init__(self, source: Source, count: int, *, pin: bool) -> None:
        self._source = source
        self._count = count
        self._pin = pin
        self._iterator: Iterator[Batch | _Failure] | None = None
        self._processes: list[BaseProcess] = []

    def start(self, requests: Iterator[Request]) -> None:
        """Starts the processes on `requests`; those of an earlier start end."""
        self.close()
        loader: DataLoader[Any] = DataLoader(
            _Fetcher(self._source),
            batch_size=None,
            sampler=_Stream(requests),
            num_workers=self._count,
            collate_fn=_unchanged,
            pin_memory=self._pin,
            worker_init_fn=_Initialize(os.getpid(), threading.current_thread() is threading.main_thread()),
            multiprocessing_context="fork" if "fork" in multiprocessing.get_all_start_methods() else None,
            generator=torch.Generator(),  # else a number is drawn from the generator that dropout draws from
        )
        before = set(multiprocessing.active_children())
        with _child_signal_kept(), _stop_signals_held():
            self._iterator = iter(loader)
        self._processes = [process for process in multiprocessing.active_children() if process not in before]
        Finalize(self, _kill, (self._processes,), exitpriority=10)

    def next(self) -> Batch:
        """The batch of the next request.

        Raises UserError: what the source raised, or (status 1, within five seconds) that a worker died.
        """
        assert self._iterator is not None, "not started"
        try:
            batch = next(self._iterator)
        except (RuntimeError, OSError, EOFError) as error:
            # OSError, EOFError: it died between announcing a batch and handing over the batch's memory
            if isinstance(error, RuntimeError) and ("DataLoader worker" not in str(error) or "Caught" in str(error)):
                raise
            said = str(error).strip() or type(error).__name__
            raise UserError(
                f"a loader process of data.workers died or lost its batch ({said})",
                "Set fewer data.workers if memory ran out; data.workers = 0 shows errors in the rank itself.",
            ) from error
        if isinstance(batch, _Failure):
            raise UserError(batch.what, batch.fix, batch.status) from WorkerTraceback(batch.text)
        return batch

    def close(self) -> None:
        """Ends the processes; those that do not end within a second are killed."""
        if self._iterator is None:
            return
        watch = threading.Timer(1.0, _kill, (self._processes,))
        watch.start()
        self._iterator = None  # torch's own end: the last reference tells the processes to leave, and waits
        watch.cancel()
        watch.join()
        _kill(self._processes)
        for process in self._processes:
            process.join()
        self._processes.clear()


class _Initialize:
    """Runs first in each worker."""

    def __init__(self, parent: int, by_main_thread: bool) -> None:
        self._parent = parent
        self._by_main_thread = by_main_thread

    def __call__(self, worker: int) -> None:
        signal.set_wakeup_fd(-1)  # else a signal to a worker would wake the rank
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        if sys.platform == "linux" and self._by_main_thread:  # the kernel means the thread that forked, not the process
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() != self._parent:
                os._exit(1)


def _unchanged(batch: Batch) -> Batch:
    return batch


@contextlib.contextmanager
def _child_signal_kept() -> Iterator[None]:
    """Takes back the SIGCHLD handler that torch sets: it raises wherever the rank happens to be (in a collective, while
    saving); without it the death of a worker is told by the next request."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGCHLD, handler)


@contextlib.contextmanager
def _stop_signals_held() -> Iterator[None]:
    """Hold back requests to stop while workers are started, which inherit that: one that arrived before a worker
    ignores them would end it."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _kill(processes: list[BaseProcess]) -> None:
    for process in processes:
        with contextlib.suppress(ValueError):  # closed
            if process.is_alive():
                process.kill()
