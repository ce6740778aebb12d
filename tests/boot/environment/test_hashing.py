"""Every file against RECORD."""

from pathlib import Path

from tests.boot.environment.bed import install, requirement
from trainer_boot.environment.hashing import bytes_of, compare
from trainer_boot.environment.installed import survey

NUMPY = [requirement("numpy", "2.4.6")]


def differences(site: Path, sizes_only: bool = False) -> list[str]:
    seen: list[tuple[int, int]] = []
    found = compare(NUMPY, survey([str(site)]), lambda done, total: seen.append((done, total)), sizes_only=sizes_only)
    assert seen[-1][0] == seen[-1][1] == bytes_of(NUMPY, survey([str(site)]))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    return [problem.what for problem in found]


def test_changed_shortened_and_gone(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.4.6")
    assert differences(tmp_path) == []
    (tmp_path / "numpy" / "part.py").write_bytes(b"y = 3\n")
    assert differences(tmp_path, sizes_only=True) == []
    assert "numpy/part.py is another" in differences(tmp_path)[0]
    (tmp_path / "numpy" / "part.py").write_bytes(b"y")
    assert "numpy/part.py has 1 bytes, not 6" in differences(tmp_path, sizes_only=True)[0]
    (tmp_path / "numpy" / "part.py").unlink()
    assert "numpy/part.py is gone" in differences(tmp_path)[0]


def test_many_are_counted(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.4.6", {f"numpy/part{number}.py": b"x" for number in range(20)})
    for number in range(20):
        (tmp_path / "numpy" / f"part{number}.py").unlink()
    (what,) = differences(tmp_path)
    assert what.endswith("and 15 more")


def test_nothing_to_compare_with(tmp_path: Path) -> None:
    (install(tmp_path, "numpy", "2.4.6") / "RECORD").unlink()
    assert "has no RECORD" in differences(tmp_path)[0]
