"""Which parts each rank of a pipeline has, and how many micro-batches of them wait for their backward."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate

from trainer.estimate.job import Job
from trainer.estimate.parts import Part, Parts
from trainer.schedules import even_cut, held, stages_of, stages_per_rank


class Stage:
    """`blocks`: the numbers of its blocks; `first`, `last`: whether it has the ends of the model; `held`: micro-batches
    between their forward and their backward at the rank's fullest; `sends`: whether another rank waits for the gradient
    of its input."""

    def __init__(self, blocks: range, *, first: bool, last: bool, held: int, sends: bool) -> None:
        self.blocks = blocks
        self.first = first
        self.last = last
        self.held = held
        self.sends = sends

    def parts(self, parts: Parts) -> list[Part]:
        """Its blocks."""
        return [parts.blocks[index] for index in self.blocks]

    def ends(self, parts: Parts) -> list[Part]:
        """What it has besides."""
        return ([parts.first] if self.first else []) + ([parts.last] if self.last else [])


def stages_of_rank(job: Job, parts: Parts, rank: int) -> list[Stage]:
    """The stages of pipeline rank `rank`, in the order of the model."""
    ranks = job.layout.pipeline
    if ranks == 1:
        return [Stage(range(len(parts.blocks)), first=True, last=True, held=1, sends=False)]
    virtual = stages_per_rank(job.schedule, job.virtual)
    blocks = _blocks(job, parts, ranks * virtual)
    own = stages_of(rank, ranks, job.schedule, virtual)
    waiting = held(job.schedule, ranks, rank, job.forwards, virtual)
    return [
        Stage(
            blocks[index],
            first=index == 0,
            last=index == len(blocks) - 1,
            held=number,
            sends=index > 0 and index - 1 not in own,
        )
        for index, number in zip(own, waiting, strict=True)
    ]


def fullest(job: Job, parts: Parts) -> Iterator[list[Stage]]:
    """The stages of the ranks of which one holds the most: of those that have the same, the one with the most
    micro-batches."""
    found: dict[tuple[object, ...], list[Stage]] = {}
    for rank in range(job.layout.pipeline):
        stages = stages_of_rank(job, parts, rank)
        alike = tuple((stage.first, stage.last, *map(id, stage.parts(parts))) for stage in stages)
        if alike not in found or sum(each.held for each in stages) > sum(each.held for each in found[alike]):
            found[alike] = stages
    yield from found.values()


def _blocks(job: Job, parts: Parts, count: int) -> list[range]:
    """The blocks of each of so many stages."""
    if job.cut:
        return _ranges(tuple(job.cut))
    return _even(tuple(part.work for part in parts.blocks), count, parts.first.work, parts.last.work)


@lru_cache
def _even(costs: tuple[int, ...], stages: int, first: int, last: int) -> list[range]:
    return _ranges(tuple(even_cut(costs, stages, first, last)))


def _ranges(sizes: tuple[int, ...]) -> list[range]:
    ends = list(accumulate(sizes))
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]
