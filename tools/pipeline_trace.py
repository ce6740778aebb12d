"""What a pipeline's ranks do and when: a model whose stages only sleep, its trace, and the same by arithmetic."""

import contextlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer.parallel.pipeline import Pipeline

CPU = torch.device("cpu")


class Times(NamedTuple):
    """Seconds of a stage's forward, its backward for inputs and that for weights."""

    forward: float
    inputs: float
    weights: float


class Event(NamedTuple):
    """What a rank did: F forward, B backward, I that for inputs alone, W that for weights; seconds of its start and
    end. `paired`: what it made is sent when what comes next is through too."""

    kind: str
    stage: int
    micro_batch: int
    start: float
    end: float
    paired: bool = False


class _Sleeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, there: float, back: float) -> Tensor:
        ctx.back = back
        time.sleep(there)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        time.sleep(ctx.back)
        return gradient, None, None


class SleepingBlock(nn.Module):
    """x + weight, as slow as asked for, each backward of its own."""

    def __init__(self, times: Times) -> None:
        super().__init__()
        self.times = times
        self.weight = nn.Parameter(torch.zeros(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        own: Tensor = _Sleeping.apply(x, self.times.forward, self.times.inputs)
        slow: Tensor = _Sleeping.apply(self.weight, 0.0, self.times.weights)
        return own + slow


class Sleeper(nn.Module):
    """Blocks that sleep, one after the other."""

    def __init__(self, blocks: int, times: Times) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.zeros(1, 4))  # so that the first block's backward has an input to go to
        self.blocks = nn.ModuleList(SleepingBlock(times) for _ in range(blocks))

    def plan(self) -> Any:
        """A pipeline of its blocks."""
        from trainer.models.plan import Plan

        names = [f"blocks.{index}" for index in range(len(self.blocks))]
        return Plan(names, begin="begin", end="", hidden="between")

    def begin(self, x: Tensor) -> Tensor:
        """What the first block gets."""
        return x + self.start

    def between(self, x: Tensor) -> tuple[tuple[int, ...], torch.dtype]:
        """What goes from block to block."""
        return tuple(x.shape), x.dtype

    def forward(self, x: Tensor) -> Tensor:
        x = self.begin(x)
        for block in self.blocks:
            x = block(x)
        return x


def total(model: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of what comes out."""
    output = model(batch)
    return output.sum(), torch.tensor(len(output))


def traced(rank: int, count: int, schedule: str, virtual: int, micro_batches: int, times: Times) -> list[Event]:
    """One rank of an update: its events."""
    # a stage of several to a rank does its share of a rank's work
    shared = Times(*(each / virtual for each in times))
    model = Sleeper(count * virtual, Times(0.0, 0.0, 0.0))
    group = dist.group.WORLD
    assert group is not None
    pipeline = Pipeline(model, total, group, CPU, schedule=schedule, virtual=virtual)
    batches = [(torch.zeros(1, 4), 1)] * micro_batches
    pipeline(batches, 1.0, contextlib.nullcontext())  # connects the ranks
    events: list[Event] = []
    for stage in pipeline._stages:
        _watch(stage, events)
    for block in model.modules():
        if isinstance(block, SleepingBlock):
            block.times = shared
    dist.barrier()
    began = time.monotonic()
    pipeline(batches, 1.0, contextlib.nullcontext())
    first = _first_of_pairs(pipeline._made[micro_batches], rank)
    return [
        each._replace(
            start=each.start - began,
            end=each.end - began,
            paired=(each.kind, each.stage, each.micro_batch) in first,
        )
        for each in events
    ]


def _first_of_pairs(schedule: Any, rank: int) -> set[tuple[str, int, int]]:
    """What DualPipeV overlaps with what follows: torch's runtime runs one after the other, and sends after both."""
    actions = getattr(schedule, "pipeline_order_with_comms", {rank: []})[rank]
    firsts = [action.sub_actions[0] for action in actions if action.sub_actions]
    return {(each.computation_type.value[0], each.stage_index, each.microbatch_index) for each in firsts}


def _watch(stage: Any, events: list[Event]) -> None:
    def timed(do: Any, kind: str) -> Any:
        def done(number: int, *rest: Any, **more: Any) -> Any:
            start = time.monotonic()
            found = do(number, *rest, **more)
            split = kind == "B" and not more.get("full_backward", True)
            events.append(Event("I" if split else kind, stage.stage_index, number, start, time.monotonic()))
            return found

        return done

    kinds = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}
    for name, kind in kinds.items():
        setattr(stage, name, timed(getattr(stage, name), kind))


def in_flight(events: Sequence[Event]) -> int:
    """The most micro-batches of which this rank has done a forward and not all of the backward, of all its stages."""
    most = held = 0
    for event in sorted(events, key=lambda each: each.end):
        held += {"F": 1, "B": -1, "I": 0, "W": -1}[event.kind]
        most = max(most, held)
    return most


def waited(events_of_ranks: Sequence[Sequence[Event]]) -> float:
    """Share of all ranks' time, from the first forward to the last backward, in which they did nothing."""
    start = min(each.start for events in events_of_ranks for each in events)
    end = max(each.end for events in events_of_ranks for each in events)
    busy = sum(each.end - each.start for events in events_of_ranks for each in events)
    return 1.0 - busy / (len(events_of_ranks) * (end - start))


def by_arithmetic(events_of_ranks: Sequence[Sequence[Event]], stages: int, times: Times) -> float:
    """The same share, where each rank does what it did in that order as soon as what it needs is there, and sending
    takes no time; of a pair both are sent when both are made."""
    takes = {"F": times.forward, "B": times.inputs + times.weights, "I": times.inputs, "W": times.weights}
    left = {
        rank: [
            (each.kind, each.stage, each.micro_batch, each.paired) for each in sorted(events, key=lambda one: one.start)
        ]
        for rank, events in enumerate(events_of_ranks)
    }
    busy = sum(takes[kind] for row in left.values() for kind, *_ in row)
    free = dict.fromkeys(left, 0.0)
    done: dict[tuple[str, int, int], float] = {}
    here: dict[int, dict[tuple[str, int, int], float]] = {rank: {} for rank in left}  # what a rank need not be sent
    waiting: dict[int, list[tuple[str, int, int]]] = {rank: [] for rank in left}  # made, and not sent yet
    while any(left.values()):
        moved = False
        for rank, row in left.items():
            while row:
                kind, stage, number, paired = row[0]
                needs = _needs(kind, stage, number, stages)
                known = here[rank] if needs in here[rank] else done
                if needs is not None and needs not in known:
                    break
                start = max(free[rank], known[needs] if needs is not None else 0.0)
                free[rank] = start + takes[kind]
                made = ("F" if kind == "F" else "W" if kind == "W" else "B", stage, number)
                here[rank][made] = free[rank]
                if not paired:
                    done |= dict.fromkeys((*waiting[rank], made), free[rank])
                waiting[rank] = [made] if paired else []
                row.pop(0)
                moved = True
        assert moved, "the schedule waits for itself"
    return 1.0 - busy / (len(free) * max(free.values()))


def _needs(kind: str, stage: int, number: int, stages: int) -> tuple[str, int, int] | None:
    if kind == "F":
        return ("F", stage - 1, number) if stage else None
    if kind == "W":
        return ("B", stage, number)
    return ("B", stage + 1, number) if stage + 1 < stages else ("F", stage, number)
