"""A lock that no longer fits pyproject.toml is refused; uv is the judge."""

import shutil
from pathlib import Path

import pytest

from build.errors import BuildError
from build.freshness import require_fresh
from build.lock import read_lock
from build.uv import find_uv

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """This project's own lock and what it was made from."""
    try:
        find_uv()
    except BuildError:
        pytest.skip("no uv here: start the tests by `sh tools/uv run pytest`")
    for name in ("pyproject.toml", "uv.lock", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def check(project: Path) -> None:
    require_fresh(project, read_lock(project / "uv.lock"), project / "cache")


def test_the_lock_of_this_project_fits(project: Path) -> None:
    check(project)
    (answer,) = [path for path in (project / "cache").rglob("*") if path.is_file()]
    before = answer.stat().st_mtime_ns
    check(project)
    assert answer.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"tqdm>=4.67"', '"tqdm>=99"'),
        ('"numpy>=2.2",', ""),
        ('requires-python = ">=3.11"', 'requires-python = ">=3.12"'),
    ],
)
def test_a_lock_that_does_not_fit_is_refused(project: Path, before: str, after: str) -> None:
    text = (project / "pyproject.toml").read_text()
    assert before in text
    (project / "pyproject.toml").write_text(text.replace(before, after))
    with pytest.raises(BuildError, match=r"uv\.lock does not fit pyproject\.toml") as refused:
        check(project)
    assert "uv lock" in refused.value.fix
