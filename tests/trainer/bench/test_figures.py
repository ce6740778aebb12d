"""The arithmetic of the tables."""

from trainer.bench.figures import compared, quartiles, table
from trainer.bench.rounds import turns


def test_quartiles_are_those_of_the_values_in_order() -> None:
    assert quartiles([4.0, 1.0, 3.0, 2.0, 5.0]) == (2.0, 3.0, 4.0)
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


def test_a_ratio_is_the_median_of_those_of_each_round() -> None:
    """The machine was four times slower in the second round, for both."""
    rows = compared({"plain": [2.0, 8.0, 2.0], "ours": [1.0, 4.0, 1.5]}, {})
    assert rows["plain"] == {"median": 2.0, "low": 2.0, "high": 5.0, "ratio": 1.0}
    assert rows["ours"] == {"median": 1.5, "low": 1.25, "high": 2.75, "ratio": 0.5}


def test_what_was_skipped_has_its_reason_and_is_no_base() -> None:
    rows = compared({"plain": [], "second": [2.0], "third": [1.0]}, {"plain": "there is none"})
    assert rows["plain"] == {"skipped": "there is none"}
    assert (rows["second"]["ratio"], rows["third"]["ratio"]) == (1.0, 0.5)
    lines = table("title", rows, "ms", 1)
    assert lines[0] == "title"
    assert lines[1].split() == ["median", "ms", "lower", "upper", "ratio", "(to", "second)"]
    assert lines[2] == "  plain   skipped: there is none"
    assert lines[4].split() == ["third", "1.0", "1.0", "1.0", "0.500"]


def test_every_other_round_goes_backwards_after_one_that_warms_up() -> None:
    assert turns(["a", "b"], 2) == [(0, "b"), (0, "a"), (1, "a"), (1, "b"), (2, "b"), (2, "a")]
