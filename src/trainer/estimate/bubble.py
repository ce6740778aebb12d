"""Idle time of a pipeline, as arithmetic: all stages alike, a backward twice as long as its forward, sends for nothing.

p ranks, m micro-batches, v stages a rank. Sources: GPipe (Huang et al., 2019), 1F1B and its interleaved form (Narayanan
et al., 2021), zero bubble (Qi et al., 2023), DualPipeV (DeepSeek-AI, 2024).
"""

INTERLEAVED = ("interleaved1f1b", "interleavedzerobubble", "loopedbfs")
TWO_STAGES = ("zbvzerobubble", "dualpipev")  # of each rank, in a V


def plain(schedule: str) -> str:
    """Its name without case and signs: Interleaved1F1B, interleaved-1f1b and interleaved_1f1b are one."""
    return "".join(letter for letter in schedule.lower() if letter.isalnum())


def stages_per_rank(schedule: str, virtual: int) -> int:
    """Stages of the model on each rank."""
    name = plain(schedule)
    if name in TWO_STAGES or name == "zbv":
        return 2
    return max(2, virtual) if name in INTERLEAVED else 1


def idle_share(schedule: str, ranks: int, forwards: int, virtual: int = 1) -> tuple[float, float]:
    """Idle time as a share of all time, and as a share of the time without any: (p-1)/(m+p-1) and (p-1)/m for GPipe
    and 1F1B; divided by the stages of a rank where they are interleaved. A zero-bubble schedule fills all but the wait
    for the first forward: a third of it with a backward of two parts as long as a forward each.
    """
    if ranks == 1:
        return 0.0, 0.0
    name = plain(schedule)
    waits = (ranks - 1) / stages_per_rank(schedule, virtual)
    if name == "interleavedzerobubble":
        waits /= 3
    elif name in ("zbvzerobubble", "zbv"):
        waits = 0.0
    elif name == "dualpipev":
        # (p/2 - 1) of a forward and a backward overlapped, less three weight passes: never below nothing
        waits = max(0.0, (ranks / 2 - 1) / 3)
    return waits / (forwards + waits), waits / forwards


def in_flight(schedule: str, ranks: int, stage: int, forwards: int, virtual: int = 1) -> int:
    """Most micro-batches whose forward the rank of `stage` has done and whose backward it has not, counted in whole
    passes over all stages of the rank, rounded up."""
    if ranks == 1:
        return 1
    name = plain(schedule)
    if name in ("gpipe", "loopedbfs"):
        return forwards
    if name in ("interleaved1f1b", "interleavedzerobubble"):
        stages = stages_per_rank(schedule, virtual)
        warm = 2 * (ranks - stage - 1) + (stages - 1) * ranks + 1
        return min(forwards, -(-warm // stages))
    if name in ("zbvzerobubble", "zbv"):
        return min(forwards, ranks)
    if name == "dualpipev":
        return min(forwards, ranks + 1)
    return min(forwards, ranks - stage)
