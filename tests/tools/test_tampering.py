"""Damage that is the same for the same number, and known by where it is."""

from pathlib import Path

import pytest

from tests.boot import bed
from tools.tampering import Shown, Victim, change, judge


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    bed.CODE = tmp_path / "code"
    files: bed.Files = {"app.py": "A = 1", "pack/__init__.py": "", "note.txt": b"a note"}
    return Victim(bed.archive(tmp_path / "app.pyz", files, minify=True))


def test_its_parts_are_the_whole_file(victim: Victim) -> None:
    assert victim.regions[0].begin == 0
    assert victim.regions[-1].end == len(victim.data)
    for before, after in zip(victim.regions, victim.regions[1:], strict=False):
        assert before.end == after.begin
    assert {"header", "__main__", "code", "members", "file table", "table of contents"} <= {
        region.name for region in victim.regions
    }


def test_a_number_stands_for_one_damage(victim: Victim) -> None:
    made = [change(victim, seed) for seed in range(40)]
    assert made == [change(victim, seed) for seed in range(40)]
    assert all(each.data != victim.data for each in made)
    assert {each.kind for each in made} == {"single byte", "truncation", "swapped members"}


def test_a_verification_that_finds_nothing_is_silent() -> None:
    good, bad = Shown(0, "as ever", ""), Shown(1, "", "error: x\nfix: y\n")
    whole = {"run": good, "all": good, "verify": good}
    assert judge({"run": bad, "all": bad, "verify": bad}, whole) == ("refused at the start", "error: x")
    assert judge({"run": good, "all": bad, "verify": bad}, whole)[0] == "refused where it is read"
    assert judge({"run": good, "all": good, "verify": bad}, whole)[0] == "unaffected"
    assert judge({"run": good, "all": good, "verify": good}, whole)[0] == "SILENT"
    assert judge({"run": good, "all": Shown(0, "other", ""), "verify": bad}, whole)[0] == "SILENT"
