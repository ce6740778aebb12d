"""Training with modules that wait: the same bits, and none of them is touched."""

import pytest

from tests.boot.overlays.test_training import flow
from tools import prove_hazards

# the first brings all by a tensor without numbers; the others find what a plain start has
SLICE = ("raw_meta_sum", "names_of_modules", "trees_of_sizes", "operator_names", "rooms", "generators", "many_threads")


@pytest.mark.parametrize("kind", ["ddp-adamw", "compile-sgd"])
def test_bit_for_bit_without_a_touch(kind: str) -> None:
    plain, lazily = flow("plain", kind), flow("lazy", kind)
    assert lazily[:2] == plain[:2]
    assert lazily[2] == []
    waiting, before, after = lazily[6]
    assert waiting > 40
    assert before == []
    if kind.startswith("compile-"):
        assert len(after) == 1
        assert lazily[5] == plain[5]


def test_what_torch_can_do_it_can_do_after_a_lazy_start() -> None:
    row = prove_hazards.compared(prove_hazards.POLICIES["fast"], *SLICE)
    assert row["same"], row
    assert row["proves"], row
