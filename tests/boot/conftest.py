"""The code cache of the small archives goes away with the session."""

import shutil
from collections.abc import Iterator

import pytest

from tests.boot import bed


@pytest.fixture(scope="session", autouse=True)
def code_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    bed.CODE = tmp_path_factory.mktemp("code")
    yield
    shutil.rmtree(bed.CODE, ignore_errors=True)
