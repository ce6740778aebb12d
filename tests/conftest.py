"""What every test may rely on: no leaked variables, and processes of the beds that end with the session."""

import os
import sys
from collections.abc import Iterator

import pytest

# where it is set, every process that a test starts would compile torch's sources anew: four seconds each
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers for all tests, where there are cores for them; files or tests that are named run in this process."""
    return 0 if _named(config) or len(os.sched_getaffinity(0)) < 2 else 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests run where they are named, or asked for with `-m long`."""
    if _named(config) or config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in set(long)]


def _named(config: pytest.Config) -> bool:
    return config.args_source is not pytest.Config.ArgsSource.TESTPATHS or bool(config.option.keyword)


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
def processes_end() -> Iterator[None]:
    """What the beds keep for all tests."""
    yield
    for bed in ("tests.beds.ranks", "tests.beds.warm"):
        if bed in sys.modules:
            sys.modules[bed].close_all()
