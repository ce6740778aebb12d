"""All ranks run the same build with the same settings on the same data, or none trains.

Ranks of one machine that `--nproc` started leave what they have in their launch folder: the first one writes, the
others compare, and none waits. Other ranks compare over the store where they meet: rank 0 writes what it has, a rank
that differs says so, and rank 0 gives the verdict when all have come. That takes four small requests a rank, whatever
the number of ranks.

A store may outlive its ranks: torchrun keeps one over restarts. So every start of the ranks has a prefix of its own in
it, which rank 0 draws; what earlier ranks left is never read.
"""

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, NoReturn

from trainer.errors import UserError
from trainer.launch.facts import JOB_VARIABLES, KINDS, Build, Fact, Rank, dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in its __all__

GENERATION = "trainer generation"
LINGER_SECONDS = 5.0
LOOK_SECONDS = 2.0
MOST_NAMED = 4
SAME = "same"


class Meeting(NamedTuple):
    """Where the ranks of this start have met: the store, the prefix of all their keys, and who this rank is.
    `outlives`: the store is kept for the next start of the ranks."""

    store: "Store"
    prefix: str
    me: Rank
    outlives: bool


def meet(store: "Store", me: Rank, address: str, timeout: float, outlives: bool = False) -> Meeting:
    """Find the prefix of this start. UserError, on both sides, where another job's ranks are found at `address`."""
    store.set_timeout(timedelta(seconds=timeout))
    if me.rank == 0:
        prefix = f"trainer {os.urandom(8).hex()} "
        store.set(prefix + "first", dumps(me, ()))
        store.set(GENERATION, prefix)
    else:
        prefix = store.get(GENERATION).decode()
    meeting = Meeting(store, prefix, me, outlives)
    if me.rank:
        first, _ = loads(store.get(prefix + "first"))
        problem = _conflict(first, me, address)
        if problem:
            _tell_at_once(meeting, *problem)
    mine = dumps(me, ())
    held = store.compare_set(f"{prefix}rank {me.rank}", "", mine)
    if held.decode() != mine:
        other, _ = loads(held)
        what = f"two processes have come to {address} as rank {me.rank}: {_process(other)} and {_process(me)}"
        _tell_at_once(meeting, what, "Give each job its own MASTER_PORT, and every rank of a job its own RANK.")
    return meeting


def require_same(meeting: Meeting, topic: str, facts: Sequence[Fact], timeout: float) -> Meeting:
    """Return when all ranks have come here with the same `facts` on `topic`.

    UserError, alike on each of them, that names the ranks that differ and the first fact in which they do;
    RuntimeError of the store's after `timeout` seconds. The meeting that is returned is another one where this rank
    had found what dead ranks had left.
    """
    store, prefix, me, _ = meeting
    prefix += topic + " "
    if me.rank == 0:
        store.set(prefix + "first", dumps(me, facts))
        _came(store, prefix, me.world_size)
        store.wait([prefix + "all"], timedelta(seconds=timeout))
        verdict = _verdict(store, prefix, me, facts)
        if meeting.outlives:
            store.delete_key(GENERATION)  # all have read it; ranks that are started anew must not
        store.compare_set(prefix + "verdict", "", verdict)
    else:
        if not _wait(meeting, [prefix + "first"], timeout):
            return require_same(_again(meeting), topic, facts, timeout)
        _, theirs = loads(store.get(prefix + "first"))
        if [fact[:3] for fact in theirs] != [fact[:3] for fact in facts]:
            number = store.add(prefix + "others", 1)
            store.set(f"{prefix}other {number}", dumps(me, facts))
        _came(store, prefix, me.world_size)
        if not _wait(meeting, [prefix + "verdict"], timeout):
            return require_same(_again(meeting), topic, facts, timeout)
    verdict = store.get(prefix + "verdict").decode()
    if verdict != SAME:
        _leave(meeting, prefix, verdict)
    return meeting


def require_same_in_folder(folder: Path, topic: str, me: Rank, facts: Sequence[Fact]) -> None:
    """The same for ranks that share a launch folder. Waits for none: whoever comes first is what the others are
    compared with, and the process that started them ends them all when one fails."""
    mine = folder / f"{topic}-{me.rank}.json"
    mine.write_text(dumps(me, facts), encoding="ascii")
    first = folder / f"{topic}.json"
    try:
        first.hardlink_to(mine)
    except FileExistsError:
        other, theirs = loads(first.read_text(encoding="ascii"))
        problem = told([(other, theirs), (me, list(facts))], 2)
        if problem:
            raise UserError(*problem) from None


def require_build_of_parent(rank: int, mine: Build, said: str) -> None:
    """UserError where this rank has another build than the process that started it; `said`: what that one says."""
    build, _, lock = said.partition(" ")
    if (build, lock) != mine[:2]:
        raise UserError(
            f"{KINDS['build'].what}: rank {rank} has {mine.shown()} ({mine.path}); the process that "
            f"started it has {mine._replace(build=build, lock=lock).shown()}",
            "Start the run again. To deploy a new build beside running jobs, move it into place with mv.",
            3,
        )


def told(ranks: Sequence[tuple[Rank, Sequence[Fact]]], world_size: int) -> tuple[str, str, int] | None:
    """What, fix and status of how `ranks` differ; the first of them stands for all that are not listed. None: they do
    not. What most ranks have is taken for what was meant, and what the first has where it is a draw."""
    groups: dict[tuple[tuple[str, ...], ...], list[tuple[Rank, Sequence[Fact]]]] = {}
    for rank, facts in ranks:
        groups.setdefault(tuple(fact[:3] for fact in facts), []).append((rank, facts))
    if len(groups) == 1:
        return None
    first = next(iter(groups))
    sizes = {key: len(members) for key, members in groups.items()}
    sizes[first] += world_size - len(ranks)
    meant = max(sizes, key=lambda key: (sizes[key], key == first))
    usual = groups[meant][0][1]
    odd = sorted(
        (pair for key, members in groups.items() if key != meant for pair in members), key=lambda pair: pair[0]
    )
    apart = [_first_difference(usual, facts) for _, facts in odd]
    kind = min((difference[0] for difference in apart), key=list(KINDS).index)
    named = [
        f"rank {rank.rank} on {rank.host} has {shown}"
        for (rank, _), (of_kind, shown, _) in zip(odd, apart, strict=True)
        if of_kind == kind
    ]
    unnamed = world_size - sizes[meant] - len(named[:MOST_NAMED])
    named[MOST_NAMED:] = [f"{unnamed} more differ"] if unnamed else []
    rest = "the other rank has" if sizes[meant] == 1 else f"the {sizes[meant]} other ranks have"
    theirs = next(difference[2] for difference in apart if difference[0] == kind)
    what = f"{KINDS[kind].what}: {'; '.join(named)}; {rest} {theirs}{_further(usual, odd[0][1], kind)}"
    return what, KINDS[kind].fix, KINDS[kind].status


def _first_difference(usual: Sequence[Fact], other: Sequence[Fact]) -> tuple[str, str, str]:
    """(kind, what the other has, what is usual) of the first fact that differs."""
    mine, theirs = ({fact[:2]: fact for fact in facts} for facts in (usual, other))
    for key in [*mine, *(key for key in theirs if key not in mine)]:
        one, two = mine.get(key), theirs.get(key)
        if one is None or two is None or one.value != two.value:
            kind, name = key
            return kind, two.shown if two else f"no {name}", one.shown if one else f"no {name}"
    raise AssertionError("they do not differ")


def _further(usual: Sequence[Fact], other: Sequence[Fact], kind: str) -> str:
    """What else of that kind differs."""
    mine = {fact.name: fact.value for fact in usual if fact.kind == kind}
    theirs = {fact.name: fact.value for fact in other if fact.kind == kind}
    names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)][1:]
    if not names:
        return ""
    listed = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
    return f"; {listed} differ{'s' if len(names) == 1 else ''} too"


def _came(store: "Store", prefix: str, world_size: int) -> None:
    if store.add(prefix + "came", 1) == world_size:
        store.set(prefix + "all", "")


def _wait(meeting: Meeting, keys: list[str], timeout: float) -> bool:
    """Waits for the keys. False: this meeting is one of dead ranks, and a new one has begun."""
    store = meeting.store
    deadline = time.monotonic() + timeout
    slice_ = LOOK_SECONDS if meeting.outlives else timeout
    while True:
        begun = time.monotonic()
        slice_ = min(slice_, max(0.001, deadline - begun))
        try:
            store.wait(keys, timedelta(seconds=slice_))
            return True
        except RuntimeError:
            now = time.monotonic()
            if now >= deadline or now - begun < slice_ / 2:  # the second: the store is gone
                raise
        if store.check([GENERATION]) and store.get(GENERATION).decode() != meeting.prefix:
            return False
        slice_ *= 2  # torch prints a line whenever one is over


def _again(meeting: Meeting) -> Meeting:
    return meeting._replace(prefix=meeting.store.get(GENERATION).decode())


def _conflict(first: Rank, me: Rank, address: str) -> tuple[str, str] | None:
    """What and fix, where this rank does not belong to the run of rank 0."""
    ports = "Give each job its own MASTER_PORT"
    for name in JOB_VARIABLES:
        if name in first.job and name in me.job:
            if first.job[name] == me.job[name]:
                break
            return (
                f"two jobs meet at {address}: {me.shown()} has {name}={me.job[name]}, "
                f"{first.shown()} has {name}={first.job[name]}",
                f"{ports}. If these ranks are one run, unset {name} for all of them.",
            )
    if first.world_size != me.world_size:
        return (
            f"two jobs meet at {address}: {me.shown()} has WORLD_SIZE={me.world_size}, "
            f"{first.shown()} has WORLD_SIZE={first.world_size}",
            f"{ports}, and all ranks of a job the same WORLD_SIZE.",
        )
    return None


def _tell_at_once(meeting: Meeting, what: str, fix: str) -> NoReturn:
    """Ends all ranks at this store that have not agreed yet, and this one."""
    store, prefix = meeting.store, meeting.prefix + "run "
    store.compare_set(prefix + "verdict", "", "\n".join((what, fix, "1")))
    store.set(prefix + "all", "")
    store.add(prefix + "told", 1)
    raise UserError(what, fix)


def _verdict(store: "Store", prefix: str, me: Rank, facts: Sequence[Fact]) -> str:
    """SAME, or what, fix and status, a line each."""
    if store.check([prefix + "verdict"]):  # somebody could not wait
        return store.get(prefix + "verdict").decode()
    count = store.add(prefix + "others", 0)
    others = [loads(store.get(f"{prefix}other {number}")) for number in range(1, count + 1)]
    problem = told([(me, facts), *others], me.world_size)
    return "\n".join(map(str, problem)) if problem else SAME


def _leave(meeting: Meeting, prefix: str, verdict: str) -> NoReturn:
    """Raises the verdict; rank 0, which may hold the store, only after the others have read it."""
    store, me = meeting.store, meeting.me
    count = store.add(prefix + "told", 1)
    deadline = time.monotonic() + LINGER_SECONDS
    while me.rank == 0 and count < me.world_size and time.monotonic() < deadline:
        time.sleep(0.01)
        count = store.add(prefix + "told", 0)
    what, fix, status = verdict.split("\n")
    raise UserError(what, fix, int(status))


def _process(rank: Rank) -> str:
    return f"process {rank.process} on {rank.host}"
