"""The order of samples: a pseudo-random permutation of range(n) that is computed, not stored.

Method: a Feistel network over Z_a x Z_b with a * b >= n (the generalized Feistel cipher of Black and Rogaway, "Ciphers
with Arbitrary Finite Domains", CT-RSA 2002): each round adds a keyed hash of one half to the other, modulo that half's
size, which is a bijection whatever the hash. A result outside range(n) is sent through again ("cycle walking", same
source), which keeps the whole a bijection on range(n); it is rare, since a and b are chosen so that a * b - n < b.
The hash is the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray

ROUNDS = 8
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_SPARE = 8  # bits of the hash left out, so that adding half an index cannot overflow


def mix(value: int) -> int:
    """SplitMix64's finalizer: a bijection of 64-bit numbers in which every input bit moves every output bit."""
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def permuted(index: int, n: int, seed: int, epoch: int) -> int:
    """Which sample of `n` stands at position `index` of an epoch; a pure function of its arguments.

    For given n, seed and epoch it is a bijection of range(n). Takes constant time and memory.
    """
    if not 0 <= index < n:
        raise IndexError(f"position {index} of {n}")
    a, b = _halves(n)
    keys = _keys(seed, epoch)
    while True:
        left, right = divmod(index, b)
        for key in range(0, ROUNDS, 2):
            left = (left + (mix((right + keys[key]) & _MASK) >> _SPARE)) % a
            right = (right + (mix((left + keys[key + 1]) & _MASK) >> _SPARE)) % b
        index = left * b + right
        if index < n:
            return index


def permuted_array(positions: NDArray[np.int64], n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """`permuted` of each position in range(n); about 0.15 us each in arrays of some thousand."""
    a, b = (np.uint64(half) for half in _halves(n))
    keys = [np.uint64(key) for key in _keys(seed, epoch)]
    result = _network(positions.astype(np.uint64), a, b, keys)
    while (outside := np.flatnonzero(result >= n)).size:
        result[outside] = _network(result[outside], a, b, keys)
    return result.astype(np.int64)


def _network(index: NDArray[np.uint64], a: np.uint64, b: np.uint64, keys: list[np.uint64]) -> NDArray[np.uint64]:
    left = index // b
    right = index - left * b
    for key in range(0, ROUNDS, 2):
        left = _remainder(left + (_mix_array(right + keys[key]) >> np.uint64(_SPARE)), a)
        right = _remainder(right + (_mix_array(left + keys[key + 1]) >> np.uint64(_SPARE)), b)
    return left * b + right


def _remainder(value: NDArray[np.uint64], divisor: np.uint64) -> NDArray[np.uint64]:
    return value - value // divisor * divisor  # numpy divides by one number several times faster than it takes %


def _mix_array(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(_FIRST)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(_SECOND)
    return value ^ (value >> np.uint64(31))


def _halves(n: int) -> tuple[int, int]:
    b = max(1, math.isqrt(n))
    return -(-n // b), b


@functools.lru_cache(maxsize=4)
def _keys(seed: int, epoch: int) -> tuple[int, ...]:
    start = mix((mix(seed & _MASK) + epoch * _GOLDEN) & _MASK)
    return tuple(mix((start + (number + 1) * _GOLDEN) & _MASK) for number in range(ROUNDS))
