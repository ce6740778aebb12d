"""The environment variables of ours that name code, or a place that code is read from, and when they count.

Under `-I` and `-E` Python ignores its own variables (PYTHONPATH and its kind), so that whoever sets the environment
can't choose what runs. These are ignored for the same reason, and a note says so. Settings that name code
(`TRAINER_MODEL_BUILD`, marked in trainer.schema) follow the same rule.

Variables that only restrict what runs (TRAINER_VERIFY, TRAINER_ENV_ENTER=0) or that carry data between a launcher and
its ranks name no code and always count.
"""

from __future__ import annotations

import os
import sys

NAMES_CODE = {
    "TRAINER_ENV_STORE": "the store whose environments are started",
    "TRAINER_ENV_OWNERS": "other users whose environments are started",
    "TRAINER_SNAPSHOT_DIR": "the folder that the import snapshot is served from",
    "TRAINER_NODE_DIR": "the folder for copies of the snapshot on this node",
}
"""Name -> what it chooses."""

_told: set[str] = set()


def value(name: str) -> str:
    """Of one of NAMES_CODE; "" where it is not set, or ignored (then a note says so, once)."""
    assert name in NAMES_CODE, name
    found = os.environ.get(name, "")
    if found and ignored():
        tell(name)
        return ""
    return found


def ignored() -> bool:
    """Whether variables that name code do not count for this interpreter."""
    return bool(sys.flags.ignore_environment)


def tell(name: str) -> None:
    """Says on standard error that the variable is ignored: once a process, and once a job."""
    if name in _told or "TRAINER_LAUNCH_DIR" in os.environ or os.environ.get("RANK", "0") != "0":
        return
    _told.add(name)
    option = "-I" if sys.flags.isolated else "-E"
    if sys.stderr is not None:
        sys.stderr.write(f"note: {name} is ignored: Python was started with {option}, and it names code\n")
