"""Idle time of a pipeline, as arithmetic: all stages alike, a backward twice as long as its forward, sends for nothing.

p ranks, m micro-batches, v stages a rank. Sources: GPipe (Huang et al., 2019), 1F1B and its interleaved form (Narayanan
et al., 2021), zero bubble (Qi et al., 2023), DualPipeV (DeepSeek-AI, 2024). `tools/prove_pipeline.py` measures it.
"""

from trainer.schedules import V_SHAPED, held, stages_per_rank


def idle_share(schedule: str, ranks: int, forwards: int, virtual: int = 0) -> tuple[float, float]:
    """Idle time as a share of all time, and as a share of the time without any: (p-1)/(m+p-1) and (p-1)/m for GPipe
    and 1F1B; divided by the stages of a rank where they are interleaved; a third of that where the backward for weights
    waits for nobody and fills gaps; what a V has left is the wait for the first forward and after the last backward.
    DualPipeV has twice that: torch runs the pairs it overlaps one after the other, and sends what they made after both.
    """
    if ranks == 1:
        return 0.0, 0.0
    waits = (ranks - 1) / stages_per_rank(schedule, virtual)
    if schedule == "zero_bubble" or schedule in V_SHAPED:
        waits /= 1.5 if schedule == "dualpipev" else 3
    return waits / (forwards + waits), waits / forwards


def in_flight(schedule: str, ranks: int, stage: int, forwards: int, virtual: int = 0) -> int:
    """Most micro-batches whose forward the rank of `stage` has done and whose backward it has not, counted in whole
    passes over all stages of the rank, rounded up."""
    if ranks == 1:
        return 1
    found = held(schedule, ranks, stage, forwards, stages_per_rank(schedule, virtual))
    return -(-sum(found) // len(found))
