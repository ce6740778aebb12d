"""All ranks run the same file from the same lock, or none trains; known before the first collective.

Ranks of `--nproc` compare theirs with what their parent has told them. Others compare over the store where they meet:
two numbers and two texts a rank, whatever the size of the world (a millisecond over TCP, and ten over a file, which is
asked again every ten).
"""

import json
import socket
import sys
import time
from typing import NamedTuple

from trainer import startup
from trainer.errors import UserError
from trainer.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in its __all__

PREFIX = "trainer build: "
LINGER_SECONDS = 5.0
MOST_NAMED = 4
DIGITS = 12


class Build(NamedTuple):
    """What a rank runs. The digests are empty where it was not started from a built file."""

    build: str
    lock: str
    version: str
    host: str
    path: str

    def same_as(self, other: "Build") -> bool:
        """Whether both run the same code from the same lock."""
        return self[:3] == other[:3]

    def shown(self) -> str:
        """For messages."""
        if not self.build:
            return f"no built file, version {self.version}"
        return f"build {self.build[:DIGITS]}, lock {self.lock[:DIGITS]}"


def own_build() -> Build:
    """That of this process."""
    return Build(*startup.identity(), VERSION, socket.gethostname(), startup.bundle_path() or sys.prefix)


def require_build_of_parent(rank: int, mine: Build, told: str) -> None:
    """UserError where this rank has another build than the process that started it; `told`: what that one says."""
    build, _, lock = told.partition(" ")
    if (build, lock) != mine[:2]:
        raise UserError(
            f"the ranks do not run the same build: rank {rank} has {mine.shown()} ({mine.path}); the process that "
            f"started it has {mine._replace(build=build, lock=lock).shown()}",
            "start again; to deploy a new build beside running jobs, move it there (mv)",
            3,
        )


def require_same_build(store: "Store", rank: int, world_size: int, mine: Build) -> None:
    """Returns when all ranks have come here with the same build. UserError, on each of them, that names those with
    another one; RuntimeError of the store's after its time-out."""
    if rank == 0:
        store.set(PREFIX + "rank 0", json.dumps(mine))
        first = mine
    else:
        first = _read(store, "rank 0")
        if not mine.same_as(first):
            number = store.add(PREFIX + "others", 1)
            store.set(f"{PREFIX}other {number}", json.dumps([rank, *mine]))
    if store.add(PREFIX + "came", 1) == world_size:
        store.set(PREFIX + "verdict", _verdict(store, first, world_size) or "same")
    verdict = store.get(PREFIX + "verdict").decode()
    if verdict == "same":
        return
    told = store.add(PREFIX + "told", 1)
    deadline = time.monotonic() + LINGER_SECONDS
    while rank == 0 and told < world_size and time.monotonic() < deadline:  # it may be the one that holds the store
        time.sleep(0.01)
        told = store.add(PREFIX + "told", 0)
    raise UserError(verdict, "start the same file on every host: compare what `trainer self info` says there", 3)


def _read(store: "Store", name: str) -> Build:
    return Build(*json.loads(store.get(PREFIX + name)))


def _verdict(store: "Store", first: Build, world_size: int) -> str:
    """What is wrong; "" if nothing."""
    count = store.add(PREFIX + "others", 0)
    if not count:
        return ""
    others: list[tuple[int, Build]] = []
    for number in range(1, count + 1):
        rank, *values = json.loads(store.get(f"{PREFIX}other {number}"))
        others.append((rank, Build(*values)))
    groups: dict[tuple[str, ...], list[tuple[int, Build]]] = {}
    for rank, build in sorted(others):
        groups.setdefault(build[:3], []).append((rank, build))
    # the most stand for what was meant, rank 0 where it is a draw
    sizes = {first[:3]: world_size - count} | {key: len(ranks) for key, ranks in groups.items()}
    meant = max(sizes, key=lambda key: (sizes[key], key == first[:3]))
    named = [(0, first)] if meant != first[:3] else []
    named += [(rank, build) for key, ranks in groups.items() if key != meant for rank, build in ranks]
    told = [f"rank {rank} on {build.host} has {build.shown()} ({build.path})" for rank, build in named[:MOST_NAMED]]
    unnamed = world_size - sizes[meant] - len(told)
    if unnamed:
        told.append(f"{unnamed} more differ")
    usual = first if meant == first[:3] else groups[meant][0][1]
    rest = "the other one has" if sizes[meant] == 1 else f"the {sizes[meant]} others have"
    return f"the ranks do not run the same build: {'; '.join(told)}; {rest} {usual.shown()}"
