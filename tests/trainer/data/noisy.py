"""Datasets as a user would write them, named on the command line by file or module."""

import os
import random
import signal
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

Item = tuple[int, float, float, float, float]


class Noisy(Dataset[Item]):
    """Items of (index, draws of random, of numpy's global generator, of torch, of a generator of its own)."""

    def __init__(self, items: int = 32) -> None:
        self.items = items
        self.own = np.random.default_rng(0)

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> Item:
        return index, random.random(), float(np.random.rand()), float(torch.rand(())), float(self.own.random())

    def collate(self, items: list[Item]) -> list[Item]:
        return items


class Reseeded(Noisy):
    """Lets the trainer seed its own generator."""

    def reseed(self, seed: int) -> None:
        self.own = np.random.default_rng(seed)


class Squares(Dataset[torch.Tensor]):
    """Item i is i * i; misbehaves as told."""

    tokens_per_sample = 3
    vocabulary = 17

    def __init__(self, items: int = 20, fault: str = "", at: int = 5) -> None:
        self.items, self.fault, self.at = items, fault, at

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at and self.fault == "raise":
            raise ValueError("this sample is broken")
        if index == self.at and self.fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if index == self.at and self.fault == "hang":
            time.sleep(1000)
        if index == self.at and self.fault == "shape":
            return torch.zeros(2)
        return torch.tensor(index * index)

    def validation(self) -> "Squares":
        return Squares(4)


class Endless(IterableDataset[int]):
    """No map-style dataset."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def make(items: int = 3) -> Noisy:
    return Noisy(items)


ready = Noisy(6)
