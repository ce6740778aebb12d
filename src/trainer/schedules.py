"""Pipeline schedules as arithmetic without torch: which there are, what they can do, and how the model's stages lie on
the ranks."""

from collections.abc import Sequence
from itertools import pairwise

from trainer.errors import UserError

# schedule -> (stages a rank has: fixed, or 0 for any from the next on; stages a rank has unless set)
SCHEDULES = {
    "gpipe": (1, 1),
    "1f1b": (1, 1),
    "interleaved": (0, 2),
    "zero_bubble": (0, 2),
    "zbv": (2, 2),
    "dualpipev": (2, 2),
}
V_SHAPED = ("zbv", "dualpipev")
SPLIT_BACKWARD = ("zero_bubble", "zbv", "dualpipev")


def stages_per_rank(schedule: str, virtual: int) -> int:
    """Stages of a rank; `virtual`: as set, 0 for what is usual. UserError (status 2) where the schedule has no such."""
    fixed, usual = SCHEDULES[schedule]
    if fixed and virtual not in (0, fixed):
        raise UserError(
            f"parallel.virtual is {virtual}, but schedule {schedule} has {fixed} stage{'s'[: fixed - 1]} per rank",
            f"Remove parallel.virtual, or set parallel.schedule to {'interleaved' if fixed == 1 else 'zero_bubble'}.",
            2,
        )
    return virtual or usual


def stages_of(rank: int, ranks: int, schedule: str, virtual: int) -> list[int]:
    """The stages that pipeline rank `rank` of `ranks` has: rank, rank + ranks, ...; of a V there and back."""
    if schedule in V_SHAPED:
        return [rank, 2 * ranks - 1 - rank]
    return [rank + turn * ranks for turn in range(virtual)]


def allowed(schedule: str, ranks: int, micro_batches: int) -> bool:
    """Can torch's schedule run so many micro-batches?"""
    if schedule == "1f1b":
        return micro_batches >= ranks
    if schedule == "dualpipev":
        return micro_batches >= 2 * ranks
    if schedule in ("interleaved", "zero_bubble"):
        return micro_batches % max(1, micro_batches // ranks) == 0
    return True


def next_allowed(schedule: str, ranks: int, micro_batches: int) -> int:
    """The least number of micro-batches, not below `micro_batches`, that the schedule can run."""
    while not allowed(schedule, ranks, micro_batches):
        micro_batches += 1
    return micro_batches


def usual_micro(schedule: str, ranks: int, share: int) -> int:
    """Samples of a forward where none is set: four micro-batches to a rank where a rank's `share` of samples has as
    many (a fifth of the time is waited), else as many as it allows."""
    sizes = [micro for micro in range(share, 0, -1) if share % micro == 0 and allowed(schedule, ranks, share // micro)]
    return next((micro for micro in sizes if share // micro >= 4 * ranks), sizes[-1] if sizes else share)


def held(schedule: str, ranks: int, rank: int, micro_batches: int, virtual: int) -> list[int]:
    """Micro-batches of each of the rank's stages between their forward and their backward (that for weights, where it
    is one by itself) when the rank has the most of them: as torch orders them."""
    if schedule == "gpipe":
        found = [micro_batches]
    elif schedule == "1f1b":
        found = [ranks - rank]
    elif schedule == "zero_bubble":
        found = [ranks] * virtual
    elif schedule in V_SHAPED:
        found = [2 * ranks - 1 - rank + (1 if schedule == "dualpipev" else 0), rank + 1]
    else:
        # forwards go through the rank's stages in rounds, until the first backward comes back
        each_round = micro_batches // max(1, micro_batches // ranks)
        rest = 2 * (ranks - rank - 1) + (virtual - 1) * each_round + 1
        found = [0] * virtual
        turn = 0
        while rest > 0:
            found[turn % virtual] += min(each_round, rest)
            rest -= each_round
            turn += 1
    return [min(each, micro_batches) for each in found]


def check_micro_batches(schedule: str, ranks: int, share: int, micro: int) -> None:
    """UserError (status 2) where a rank's `share` of samples makes micro-batches that the schedule cannot run."""
    found = share // micro
    if allowed(schedule, ranks, found):
        return
    fits = [each for each in range(1, share + 1) if share % each == 0 and allowed(schedule, ranks, share // each)]
    needs = {
        "1f1b": f"at least {ranks} micro-batches, one for each rank",
        "dualpipev": f"at least {2 * ranks} micro-batches, one for each stage",
    }.get(schedule, f"a multiple of {max(1, found // ranks)} micro-batches")
    raise UserError(
        f"parallel.schedule {schedule} needs {needs}, but there are {found} ({share} samples / batch.micro {micro})",
        f"Set batch.micro to {min(fits, key=lambda each: abs(each - micro))}."
        if fits
        else f"Set batch.size to {next_allowed(schedule, ranks, found + 1) * micro} or more, "
        "or parallel.schedule to gpipe.",
        2,
    )


def even_cut(costs: Sequence[float], stages: int, first: float = 0.0, last: float = 0.0) -> list[int]:
    """Units of each stage, in order, at least one each, so that the dearest stage is as cheap as can be. `first` and
    `last`: what the first and the last stage have to do besides. At most as many stages as units."""
    assert 1 <= stages <= len(costs)
    sums = [0.0]
    for each in costs:
        sums.append(sums[-1] + each)
    count = len(costs)

    def cost(start: int, end: int) -> float:
        return sums[end] - sums[start] + (first if start == 0 else 0.0) + (last if end == count else 0.0)

    # best[end]: (dearest stage, where the last one starts) of the first stages over units [0, end)
    best: list[list[tuple[float, int]]] = [[(cost(0, end), 0) for end in range(count + 1)]]
    for stage in range(1, stages):
        row = [(float("inf"), 0)] * (count + 1)
        for end in range(stage + 1, count + 1):
            row[end] = min((max(best[-1][start][0], cost(start, end)), start) for start in range(stage, end))
        best.append(row)
    ends = [count]
    for stage in range(stages - 1, 0, -1):
        ends.append(best[stage][ends[-1]][1])
    ends.append(0)
    ends.reverse()
    return [end - start for start, end in pairwise(ends)]


def check_cut(cut: Sequence[int], units: int, stages: int) -> None:
    """UserError (status 2) where `cut` (empty: the trainer chooses) does not give each stage units of the model."""
    if units < stages:
        raise UserError(
            f"the model has {units} block{'s'[: units - 1]}; {stages} pipeline stages need at least {stages}",
            f"Set parallel.pipeline to at most {units}, or use fewer stages per rank (parallel.virtual).",
            2,
        )
    if cut and (len(cut) != stages or sum(cut) != units or min(cut) < 1):
        raise UserError(
            f"parallel.cut = {list(cut)} is not {stages} numbers (one per stage) that add up to {units} blocks",
            f"Set parallel.cut to {even_cut([1.0] * units, stages)}, or remove it.",
            2,
        )
