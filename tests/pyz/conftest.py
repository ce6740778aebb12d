"""The one place where the real file is built, once a session."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trainer, built as users build it, alone in a folder."""
    return built_once(tmp_path_factory, "trainer.pyz")


@pytest.fixture(scope="session")
def other_pyz(pyz: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same commit, built with another option."""
    return built_once(tmp_path_factory, "other.pyz", "--no-sources")


def built_once(factory: pytest.TempPathFactory, name: str, *options: str) -> Path:
    """A copy of what the first worker to come here has built for all of them."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    place = shared / f"built-{name}"
    with open(shared / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            built(place, *options)
    return Path(shutil.copy(place, factory.mktemp("dist") / name))


def built(place: Path, *options: str) -> Path:
    """Builds there."""
    command = [sys.executable, "-m", "build", "--quiet", "--output", str(place), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return place
