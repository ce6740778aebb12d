"""Random draws of a user's dataset: every item gets generators seeded by (seed, epoch, index), and nothing else.

So draws repeat neither over workers nor over ranks nor over epochs, and a resumed run draws what the run that was never
stopped would have drawn.
"""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch

from trainer.data.order import mix

_MASK32 = (1 << 32) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def item_seed(seed: int, number: int) -> int:
    """A 64-bit seed for item `number` = epoch * items + index of a run with `seed`.

    Its low 32 bits alone differ for any two items less than 2**32 apart, because torch's CPU generator uses no more of
    a seed. (The finalizer of MurmurHash3, a bijection of 32-bit numbers, twice with keys from `seed`.)
    """
    key = mix((seed + _GOLDEN) & (1 << 64) - 1)
    low = _mix32((_mix32((number ^ key) & _MASK32) + (key >> 32)) & _MASK32)
    high = mix((key ^ mix(number & (1 << 64) - 1)) & (1 << 64) - 1) >> 32
    return high << 32 | low


def seed_generators(seed: int) -> None:
    """Seeds the generators of `random`, numpy (the global one) and torch (CPU) with 64 bits."""
    random.seed(seed)
    np.random.seed([seed & _MASK32, seed >> 32])
    torch.default_generator.manual_seed(seed)


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Leaves the three generators as they were, whatever happens inside."""
    states = random.getstate(), np.random.get_state(), torch.default_generator.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.default_generator.set_state(states[2])


def _mix32(value: int) -> int:
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & _MASK32
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & _MASK32
    return value ^ (value >> 16)
