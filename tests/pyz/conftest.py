"""The one place where the real file is built, once a session."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trainer, built as users build it, alone in a folder."""
    place = tmp_path_factory.mktemp("dist") / "trainer.pyz"
    command = [sys.executable, "-m", "build", "--quiet", "--output", str(place)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return place
