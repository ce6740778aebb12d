"""Loss curves against each other, and as a picture."""

from xml.etree import ElementTree

import pytest

from tools.curves_picture import picture
from tools.prove_curves import CASES, ONE, OTHER_SEED, compared, refused

CURVES = {
    ONE: [5.0 - step / 10 for step in range(20)],
    OTHER_SEED: [5.0 - step / 10 + (0.2 if step % 2 else -0.1) for step in range(20)],
    "two ranks": [5.0 - step / 10 + (1e-6 if step >= 10 else 0.0) for step in range(20)],
}


def test_windows_are_compared_with_one_process() -> None:
    rows = compared(CURVES)
    assert rows.keys() == {OTHER_SEED, "two ranks"}
    assert rows[OTHER_SEED]["mean"] == pytest.approx(0.05)
    assert rows["two ranks"]["mean"] == pytest.approx(0.5e-6)
    assert rows["two ranks"]["largest"] == pytest.approx(1e-6)


def test_the_picture_is_whole_and_names_every_curve() -> None:
    drawn = ElementTree.fromstring(picture(CURVES, ONE, OTHER_SEED))
    lines = [each for each in drawn if each.tag.endswith("polyline")]
    assert len(lines) == 5  # three curves, two differences
    assert all(len(each.attrib["points"].split()) == 20 for each in lines)
    words = [each.text for each in drawn.iter() if each.tag.endswith("text")]
    assert set(CURVES) <= set(words)


def test_layouts_are_asked_for_before_they_run() -> None:
    assert not refused(CASES[0])
    assert "is not a multiple" in refused(CASES[0]._replace(ranks=3, changes={"parallel.tensor": "2"}))
