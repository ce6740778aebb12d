"""What a rank tells the others about itself before training: the job it belongs to, what it runs, its settings."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainer import startup
from trainer.version import VERSION

DIGITS = 12
# variables that tell one job from another; the first that both ranks have is compared, since a rank started over ssh
# inside a job may lack the scheduler's
JOB_VARIABLES = (
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "JOB_ID",
    "TORCHELASTIC_RUN_ID",
    "PMIX_NAMESPACE",
)


class Kind(NamedTuple):
    """How a difference is told: `what` the ranks do not share, the fix, and the exit status."""

    what: str
    fix: str
    status: int


KINDS = {
    "build": Kind(
        "the ranks do not run the same build",
        "Start the same file on every host: compare what `trainer self info` prints there.",
        3,
    ),
    "environment": Kind(
        "the ranks do not have the same environment",
        "Install the same versions on every host: `trainer env check` compares one with the lock.",
        3,
    ),
    "settings": Kind(
        "the ranks do not have the same settings",
        "Give every rank the same run file, the same flags and the same TRAINER_* variables.",
        2,
    ),
    "code": Kind(
        "the ranks do not run the same code of yours",
        "Copy the same version of your code to every host.",
        2,
    ),
    "data": Kind(
        "the ranks do not have the same training data",
        "Let all ranks read the same files, or copy the same files to every host.",
        1,
    ),
}


class Fact(NamedTuple):
    """One thing that all ranks must share. `value` is compared; `shown` is what a message says of it."""

    kind: str
    name: str
    value: str
    shown: str


class Build(NamedTuple):
    """What a rank runs. The digests are empty where it was not started from a built file."""

    build: str
    lock: str
    version: str
    host: str
    path: str

    def shown(self) -> str:
        """For messages."""
        if not self.build:
            return f"no built file, version {self.version}"
        return f"build {self.build[:DIGITS]}, lock {self.lock[:DIGITS]}"

    def fact(self) -> Fact:
        """For the comparison with other ranks."""
        return Fact("build", "build", " ".join(self[:3]), f"{self.shown()} ({self.path})")


class Rank(NamedTuple):
    """A rank as the others see it. `job`: the variables of JOB_VARIABLES that it has."""

    rank: int
    world_size: int
    host: str
    process: int
    job: dict[str, str]

    def shown(self) -> str:
        """For messages."""
        return f"rank {self.rank} on {self.host} (process {self.process})"


def own_build() -> Build:
    """That of this process."""
    return Build(*startup.identity(), VERSION, os.uname().nodename, startup.bundle_path() or sys.prefix)


def own_rank(rank: int, world_size: int, environ: Mapping[str, str] = os.environ) -> Rank:
    """This process."""
    job = {name: environ[name] for name in JOB_VARIABLES if environ.get(name)}
    return Rank(rank, world_size, os.uname().nodename, os.getpid(), job)


def environment() -> list[Fact]:
    """The versions that decide numbers, of what is imported."""
    found = {"python": ".".join(map(str, sys.version_info[:2]))}
    for package in ("torch", "numpy"):
        version = getattr(sys.modules.get(package), "__version__", None)
        if version is not None:
            found[package] = str(version)
    return [Fact("environment", name, version, f"{name} {version}") for name, version in found.items()]


def dumps(rank: Rank, facts: Sequence[Fact]) -> str:
    """As text, for another rank."""
    return json.dumps([rank, facts])


def loads(text: str | bytes) -> tuple[Rank, list[Fact]]:
    """What `dumps` made text of."""
    rank, facts = json.loads(text)
    return Rank(*rank), [Fact(*fact) for fact in facts]
