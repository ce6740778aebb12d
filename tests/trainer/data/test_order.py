import math

import numpy as np
import pytest

from trainer.data.draws import item_seed
from trainer.data.order import permuted, permuted_array


def order(n: int, seed: int = 0, epoch: int = 0) -> list[int]:
    return [int(i) for i in permuted_array(np.arange(n), n, seed, epoch)]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 16, 17, 64, 97, 100, 128, 1000, 1023, 1024, 1025, 7919, 65536, 99991])
def test_is_a_permutation(n: int) -> None:
    for seed, epoch in ((0, 0), (1, 0), (0, 1), (2**63, 9)):
        assert sorted(order(n, seed, epoch)) == list(range(n))


def test_one_at_a_time_is_the_same_as_many() -> None:
    for n in (1, 2, 3, 10, 257, 5000, 10**12):
        places = np.unique(np.linspace(0, n - 1, 50).astype(np.int64))
        assert permuted_array(places, n, 5, 2).tolist() == [permuted(int(place), n, 5, 2) for place in places]


def test_never_changes_between_versions() -> None:
    assert order(10) == [1, 2, 3, 8, 9, 4, 0, 7, 6, 5]
    assert order(10, epoch=1) == [6, 5, 0, 7, 3, 2, 9, 1, 4, 8]
    assert order(10, seed=1) == [4, 0, 2, 8, 6, 9, 5, 1, 7, 3]
    assert order(41, 7, 2)[:6] == [28, 25, 6, 40, 11, 29]
    large = [permuted(index, 10**12, 123456789, 3) for index in (0, 1, 10**12 - 1)]
    assert large == [956421172639, 667842908205, 893159389915]


def test_epochs_and_seeds_differ() -> None:
    orders = [tuple(order(50, seed, epoch)) for seed in range(20) for epoch in range(20)]
    assert len(set(orders)) == 400


def test_a_position_outside_is_refused() -> None:
    for index in (-1, 3):
        with pytest.raises(IndexError, match="of 3"):
            permuted(index, 3, 0, 0)


def test_every_order_of_a_few_comes_about_equally_often() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(20):
        for epoch in range(120):
            found = tuple(permuted(index, 4, seed, epoch) for index in range(4))
            counts[found] = counts.get(found, 0) + 1
    assert len(counts) == 24
    assert 60 < min(counts.values()) <= max(counts.values()) < 140  # 100 expected each


def test_samples_spread_evenly_over_an_epoch() -> None:
    n, seeds = 1000, 200
    cells = np.zeros((10, 10))
    neighbours = []
    for seed in range(seeds):
        found = permuted_array(np.arange(n), n, seed, 0)
        cells += np.histogram2d(np.arange(n), found, bins=10)[0]
        neighbours.append(float(np.corrcoef(found[1:], found[:-1])[0, 1]))
    expected = seeds * n / 100
    assert float(((cells - expected) ** 2 / expected).sum()) / 81 < 1.5  # chi square over its degrees of freedom
    assert abs(sum(neighbours) / seeds) < 4 / math.sqrt(seeds * n)


def test_item_seeds_never_repeat_in_their_low_half() -> None:
    # torch's CPU generator reads only the low 32 bits; at random 200,000 of them would repeat about five times
    seeds = [item_seed(3, number) for number in range(200_000)]
    assert len({seed & 0xFFFFFFFF for seed in seeds}) == len(seeds)
    assert len({seed >> 32 for seed in seeds}) > 199_900
    assert all(0 <= seed < 2**64 for seed in seeds[:100])
    assert item_seed(0, 0) == 5197578546559726401
    assert item_seed(7, 2**40) == 1043344047040471720
