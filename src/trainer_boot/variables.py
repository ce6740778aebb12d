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

OTHERS = {
    "TRAINER_VERIFY": "what of the file is checked at a start: all, or the SHA-256 that it must have",
    "TRAINER_ENV_ENTER": "0: a start never goes on in a stored environment",
    "TRAINER_TRACEBACK": "1: errors show where they came from",
    "TRAINER_PYZ_BUILD": "set by a started file for its children: the build that they must run",
    "TRAINER_LAUNCH_DIR": "set for ranks of --nproc: the folder of this launch",
    "TRAINER_LAUNCH_PARENT": "set for ranks of --nproc: the process that started them",
    "TRAINER_LAUNCH_BUILD": "set for ranks of --nproc: the build of that process",
    "TRAINER_RESTARTS": "set for ranks of --nproc: how often they were started again",
    "TRAINER_STORE": "set for ranks of exec: the process that holds their store",
    "TRAINER_NOT_FORKED": "set for ranks of --nproc that are started, not forked: why",
    "TRAINER_BENCH_RUN": "set by bench for what it starts: by it, it finds them again",
    "TRAINER_CALLS_LOG": "set under strace: where the calls of a start are counted",
}
"""Variables that choose no code and are no settings."""

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
