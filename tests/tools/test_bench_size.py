"""A slice of the comparison of sizes: ours, and an installation of the same modules."""

from pathlib import Path

from tools.bench_size import MEMBERS_LIMIT, content, installed, ours


def test_the_file_is_smaller_than_what_it_holds(tmp_path: Path) -> None:
    text = content(tmp_path / "plain")
    place = installed(tmp_path / "plain", tmp_path)
    assert place["modules"] == text
    assert place["bytecode"] > text
    report = ours(tmp_path)
    assert sum(row["text"] for row in report["packages"].values()) == text
    packed = sum(row["text deflated"] for row in report["packages"].values())
    assert report["parts"]["minified modules"] < MEMBERS_LIMIT * packed
    assert report["bytes"] < 0.75 * (place["modules"] + place["bytecode"])
    assert not list((tmp_path / "plain").rglob("__pycache__"))
