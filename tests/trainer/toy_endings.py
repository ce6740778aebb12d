"""A data set whose import makes the commit of a checkpoint slow, so that a test can send a signal meanwhile."""

import time
from pathlib import Path
from typing import Any

from tests.trainer.toy_data import Sequences
from trainer.checkpoint.store import Store

__all__ = ["Sequences"]

_commit = Store.commit


def _slowly(self: Store, temporary: Path, *arguments: Any) -> Path:
    (self.folder.parent / "committing").touch()
    time.sleep(1.5)  # longer than the other ranks are given once one has left
    return _commit(self, temporary, *arguments)


setattr(Store, "commit", _slowly)  # noqa: B010  # for the process that imports this
