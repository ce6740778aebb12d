"""A slice of tools/prove_hazards.py: what torch can do, it can do after a fast start, with the same result."""

from tools import hazards, prove_hazards

SLICE = (
    *("gradients_given", "checks", "recomputed", "pickles", "every_optimizer", "attributes"),
    *("sharded_training", "saved_in_parts", "tensor_operators", "tensor_unsupported"),
    *("compile_eager", "sharded_then_compiled", "names_of_compiled"),
)


def test_the_whole_list_is_long() -> None:
    assert len(hazards.CALLS) >= 30


def test_the_same_after_a_fast_start() -> None:
    row = prove_hazards.compared("gc,overlays", *SLICE)
    assert row["same"], row
    assert row["proves"], row
