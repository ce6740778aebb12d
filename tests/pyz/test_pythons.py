"""One file with code for all supported Pythons, on each of them, and on those that it does not serve."""

import json
from pathlib import Path

import pytest

from build.interpreters import SUPPORTED
from tests.boot import bed
from tests.pyz.conftest import built


@pytest.fixture(scope="module")
def one_for_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [version for version in SUPPORTED if bed.python(version) is None]
    if missing:
        pytest.skip(f"no Python {missing[0]} here")
    return built(tmp_path_factory.mktemp("dist") / "trainer.pyz", "--python", "all")


def test_each_python_runs_its_own_code_to_the_same_results(one_for_all: Path, pyz: Path) -> None:
    expected = bed.lines(bed.run(pyz, "check", "--world", "2"))
    for version in SUPPORTED:
        python = bed.python(version) or ""
        done = bed.run(one_for_all, "check", "--world", "2", python=python)
        assert (bed.lines(done), done.stderr) == (expected, "")
        said = bed.lines(bed.run(one_for_all, "self", "verify", python=python))[0]
        assert f"code for Python {', '.join(SUPPORTED)}" in said
    found = json.loads("".join(bed.lines(bed.run(one_for_all, "self", "info", "--json"))))
    assert list(found["python"]) == list(SUPPORTED)
    assert len(set(found["python"].values())) == len(SUPPORTED)
    debian = Path("/usr/bin/python3")  # another build of one of them, perhaps
    if debian.exists():
        done = bed.run(one_for_all, "check", "--world", "2", python=str(debian))
        assert done.returncode == 3 or done.stdout.splitlines() == expected


def test_one_that_is_not_served_gives_the_same_from_the_text(pyz: Path) -> None:
    other = bed.other_python()
    if other is None:
        pytest.skip("only one Python here")
    done = bed.run(pyz, "check", "--world", "2", python=other)
    assert done.stdout == bed.run(pyz, "check", "--world", "2").stdout
    assert done.stderr.startswith("note: trainer.pyz has code for Python ")
