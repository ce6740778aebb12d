"""Real ranks on this machine: N processes in one gloo group on loopback, kept for all tests of a session, and forked
from one process that has imported torch."""

import atexit
import datetime
import multiprocessing.context
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed

LIMIT = 100.0  # seconds for one function
# what ranks import, and what an optimizer does at its first step; no thread is started by it
PRELOAD = [
    "torch",
    "torch._dynamo",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    __name__,
]
ONE_THREAD = "OPENBLAS_NUM_THREADS"  # else numpy's library starts a thread a core, which no fork has


class Pool:
    """`count` processes, each waiting for (function, arguments)."""

    def __init__(self, count: int) -> None:
        context = _begun()
        self.folder = tempfile.mkdtemp(prefix="ranks-")
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, count, theirs, self.folder), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
        """What function(rank, count, *arguments) returned, by rank; a failure raises with its traceback."""
        results, failures = [], []
        whole = False
        try:
            for pipe in self.pipes:
                pipe.send((function, arguments))
            for rank, pipe in enumerate(self.pipes):
                try:
                    good, value = pipe.recv() if pipe.poll(LIMIT) else (False, f"no answer within {LIMIT} s")
                except EOFError:
                    good, value = False, "the process died"
                results.append(value)
                if not good:
                    failures.append(f"rank {rank}:\n{value}")
            whole = not failures
        finally:
            if not whole:  # also when a test's time is up: the next would read this one's answers
                self.close()
                _pools.pop(len(self.pipes), None)
        if failures:
            raise AssertionError("\n".join(failures))
        return results

    def close(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            process.kill()
            process.join()
        for pipe in self.pipes:
            pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _begun() -> multiprocessing.context.ForkServerContext:
    """With the process that all ranks are forked from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    before = os.environ.get(ONE_THREAD)
    os.environ[ONE_THREAD] = "1"
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ[ONE_THREAD]
        else:
            os.environ[ONE_THREAD] = before
    return context


_pools: dict[int, Pool] = {}


def on_ranks(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Runs function(rank, count, *arguments) on `count` gloo ranks; function and arguments must pickle."""
    if count not in _pools:
        _pools[count] = Pool(count)
    return _pools[count].run(function, arguments)


@atexit.register
def close_all() -> None:
    """Ends all ranks."""
    for pool in _pools.values():
        pool.close()
    _pools.clear()


def _serve(rank: int, count: int, pipe: Connection, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=count,
        timeout=datetime.timedelta(seconds=LIMIT),
    )
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            result = True, function(rank, count, *arguments)
        except BaseException:
            result = False, traceback.format_exc()
        pipe.send(result)
