"""A slice of the proof about prepared data, in a warm process."""

from pathlib import Path

from tests.beds.runs import warm_trainer
from tools.prove_prepared_data import CASES, make, show

SLICE = (
    "eval on other validation files",
    "prepare with other settings",
    "a train that is refused: another text",
    "eval without the corpus",
    "generate without the corpus, from another directory",
)


def test_no_question_and_no_refused_start_changes_the_data_of_a_run(tmp_path: Path) -> None:
    make(tmp_path, warm_trainer)
    rows = [show(case, tmp_path, warm_trainer) for case in CASES if case.name in SLICE]
    assert len(rows) == len(SLICE)
    assert [row for row in rows if not row["good"]] == []
