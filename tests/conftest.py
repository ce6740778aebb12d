"""What every test may rely on: no leaked variables, and ranks that end with the session."""

import os
from collections.abc import Iterator

import pytest

# where it is set, every process that a test starts would compile torch's sources anew: four seconds each
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True)
def environment_as_it_was() -> Iterator[None]:
    """A test that changes the environment without monkeypatch fails."""
    before = _variables()
    yield
    after = _variables()
    assert after == before, f"changed variables: {set(after.items()) ^ set(before.items())}"


def _variables() -> dict[str, str]:
    """The environment without what pytest and torch set in their own processes."""
    own = ("PYTEST_", "TORCHINDUCTOR_", "KMP_")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


@pytest.fixture(scope="session", autouse=True)
def snapshots_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs of the tests make and use import snapshots of their own, not the user's."""
    before = os.environ.get("TRAINER_SNAPSHOT_DIR")
    os.environ["TRAINER_SNAPSHOT_DIR"] = str(tmp_path_factory.mktemp("snapshots"))
    yield
    if before is None:
        del os.environ["TRAINER_SNAPSHOT_DIR"]
    else:
        os.environ["TRAINER_SNAPSHOT_DIR"] = before


@pytest.fixture(scope="session", autouse=True)
def ranks_end() -> Iterator[None]:
    yield
    import sys

    beds = sys.modules.get("tests.beds.ranks")
    if beds is not None:
        beds.close_pools()
