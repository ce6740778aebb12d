"""Data sets for whole runs of the toy model, named on the command line as a user's own would be."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from tests.trainer.toy import sequences

Sample = dict[str, Tensor]


class Sequences(Dataset[Sample]):
    """`count` sequences of `length` ids. With `stop_at` the process asks itself to stop at that fetch, once a file
    named `once` does not exist."""

    def __init__(self, count: int = 24, length: int = 6, seed: int = 5, stop_at: int = -1, pause: float = 0.0) -> None:
        self.ids = sequences(count, length, seed)
        self.stop_at = stop_at
        self.pause = pause
        self.fetched = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Sample:
        if self.pause:
            time.sleep(self.pause)
        self.fetched += 1
        if self.fetched == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"tokens": self.ids[index, :-1], "labels": self.ids[index, 1:]}

    def validation(self) -> "Sequences":
        return Sequences(6, len(self.ids[0]), 77)


class Faulty(Sequences):
    """Fails on rank 1 at its third fetch, in the way named by the variable FAULT."""

    def __getitem__(self, index: int) -> Sample:
        sample = super().__getitem__(index)
        if self.fetched == 3 and os.environ.get("RANK", "0") == "1" and not self._spent():
            kind = os.environ.get("FAULT", "raise")
            if kind == "raise":
                raise RuntimeError("planned fault at item 3")
            if kind == "exit0":
                os._exit(0)
            if kind == "exit9":
                os._exit(9)
            if kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "stop":
                sys.exit(0)
            time.sleep(10**6)
        return sample

    def _spent(self) -> bool:
        """With ONCE the fault happens a single time over all starts."""
        mark = os.environ.get("ONCE")
        if mark is None:
            return False
        if Path(mark).exists():
            return True
        Path(mark).touch()
        return False


class Ramp(Dataset[Sample]):
    """Sequences in which each id is the one before plus one."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Sample:
        ids = torch.arange(index, index + 6) % 16
        return {"tokens": ids[:-1], "labels": ids[1:]}


class Pictures(Dataset[Sample]):
    """Eighteen images of 4 x 4 with 2 channels in three classes, in the format `dtype`."""

    def __init__(self, dtype: str = "float32") -> None:
        generator = torch.Generator().manual_seed(3)
        self.inputs = (torch.randn(18, 2, 4, 4, generator=generator) * 2 + 1).to(getattr(torch, dtype))
        self.labels = torch.randint(3, (18,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return {"inputs": self.inputs[index], "labels": self.labels[index]}
