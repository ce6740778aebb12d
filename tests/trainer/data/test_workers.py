import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.trainer.data.noisy import Squares
from trainer.data.loader import Loader
from trainer.data.user_dataset import DatasetSource
from trainer.data.workers import WorkerTraceback
from trainer.errors import UserError


def loader(dataset: Squares, micro_batch: int = 0) -> Loader:
    source = DatasetSource(dataset, "data.dataset = 'mine.py:Squares'", 0)
    return Loader(source, global_batch=4, micro_batch=micro_batch, workers=2)


def children() -> set[int]:
    return {process.pid for process in multiprocessing.active_children() if process.pid}


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    try:
        return "State:\tZ" not in status.read_text()
    except OSError:
        return False


def test_workers_stay_for_the_whole_run_and_go_with_close() -> None:
    before = children()
    own = loader(Squares(10))
    stream = own.updates()
    seen = []
    for number in range(20):
        update = next(stream)
        seen += [int(i) for batch, _ in update.micro_batches for i in batch]
        if number == 0:
            workers = children() - before
    assert len(workers) == 2 and children() - before == workers
    assert sorted(seen[:10]) == [i * i for i in range(10)]
    own.close()
    assert children() == before
    own.close()


def test_starting_workers_draws_nothing_from_the_training_generator() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    own = loader(Squares())
    next(own.updates())
    own.close()
    assert torch.equal(torch.get_rng_state(), before)


def test_stop_signals_do_not_reach_the_data() -> None:
    before = children()
    own = loader(Squares(40))
    stream = own.updates()
    next(stream)
    for pid in children() - before:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            os.kill(pid, number)
    seen = [next(stream).cursor for _ in range(30)]
    assert seen[-1] == 31 * 4 and len(children() - before) == 2
    own.close()
    assert children() == before


def test_an_error_in_a_worker_arrives_with_its_message() -> None:
    own = loader(Squares(20, "raise"))
    with pytest.raises(UserError, match="item 5 raised ValueError: this sample is broken") as error:
        list(own.updates())
    assert error.value.status == 1 and "noisy.py, line" in error.value.what and "mine.py:Squares" in error.value.what
    assert isinstance(error.value.__cause__, WorkerTraceback) and "__getitem__" in str(error.value.__cause__)
    own.close()


def test_a_worker_that_dies_is_told() -> None:
    handler = signal.getsignal(signal.SIGCHLD)
    own = loader(Squares(20, "die"))
    with pytest.raises(UserError, match=r"a loader process of data\.workers died") as error:
        list(own.updates())
    assert error.value.status == 1 and "memory" in error.value.fix
    own.close()
    assert signal.getsignal(signal.SIGCHLD) == handler


def test_a_worker_that_hangs_does_not_keep_the_run() -> None:
    before = children()
    own = loader(Squares(20, "hang", 19), micro_batch=1)
    stream = own.updates()
    next(stream)
    time.sleep(0.3)
    start = time.monotonic()
    own.close()
    assert time.monotonic() - start < 6 and children() == before


_RANK = """
import multiprocessing, os, signal, sys, time
from tests.trainer.data.test_workers import Squares, loader

own = loader(Squares(10))
stream = own.updates()
next(stream)
print(*(process.pid for process in multiprocessing.active_children()), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "raised":
    raise SystemExit(3)
"""


@pytest.mark.parametrize("end", ["killed", "raised"])
def test_workers_end_with_their_rank(end: str) -> None:
    done = subprocess.run([sys.executable, "-c", _RANK, end], capture_output=True, text=True, timeout=100)
    workers = [int(pid) for pid in done.stdout.split()]
    assert len(workers) == 2, done.stderr
    assert done.returncode == {"killed": -signal.SIGKILL, "raised": 3}[end]
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(pid) for pid in workers)
