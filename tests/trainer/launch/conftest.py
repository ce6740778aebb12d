"""Launches that end with their test, even when it fails."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.launch.launching import Launch


@pytest.fixture(params=["spawn", "fork"])
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Launch]]:
    """Starts a launch whose files lie in `tmp_path`: `start(plan, ...)` as `Launch(tmp_path, plan, ...)`. Its ranks are
    processes of their own, and then forked ones."""
    launches: list[Launch] = []

    def begin(plan: dict[str, str], **options: Any) -> Launch:
        launches.append(Launch(tmp_path, plan, how=request.param, **options))
        return launches[-1]

    yield begin
    for launch in launches:
        launch.abandon()
