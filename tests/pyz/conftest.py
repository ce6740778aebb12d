"""The one place where the real file is built, once a session."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trainer, built as users build it, alone in a folder."""
    return built(tmp_path_factory.mktemp("dist") / "trainer.pyz")


@pytest.fixture(scope="session")
def other_pyz(pyz: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same commit, built with another option."""
    return built(tmp_path_factory.mktemp("dist") / "other.pyz", "--no-sources")


def built(place: Path, *options: str) -> Path:
    """Builds there."""
    command = [sys.executable, "-m", "build", "--quiet", "--output", str(place), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return place
