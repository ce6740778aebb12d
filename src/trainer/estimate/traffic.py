"""Bytes that one rank sends in an update, by collective and by dimension of the mesh.

Rings: an all-reduce over N ranks sends 2(N-1)/N of its size over each link, a reduce-scatter or all-gather (N-1)/N
(Patarasu and Yuan, 2009). A parameter server's link carries 2(N-1) sizes: in from each of the others, and out again.
"""

from trainer.estimate.job import Job
from trainer.estimate.parts import Parts
from trainer.estimate.stages import stages_of_rank
from trainer.schedules import stages_per_rank

SMALL = 32  # loss sum, count, stop request and squares of gradients, in fp64


class Sent:
    """One kind of message. `times`: how often in an update; `each`: bytes of the tensor concerned; `sent`: bytes of all
    that this rank sends; `over`: the mesh's dimension, between whose ranks it goes."""

    def __init__(self, over: str, collective: str, what: str, times: int, each: float, share: float) -> None:
        self.over = over
        self.collective = collective
        self.what = what
        self.times = times
        self.each = round(each)
        self.sent = round(times * each * share)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return dict(self.__dict__)


def traffic(job: Job, parts: Parts) -> list[Sent]:
    """What the fullest rank sends in an update."""
    layout = job.layout
    stages = stages_of_rank(job, parts, 0)
    blocks = [block for stage in stages for block in stage.parts(parts)]
    ends = [end for stage in stages for end in stage.ends(parts)]
    root = sum(part.own for part in ends)
    inner = sum(part.own for part in blocks)
    number = job.formats.weights
    found = _data(job, root, inner, number)
    if layout.pipeline > 1:
        times = 2 * job.forwards * stages_per_rank(job.schedule, job.virtual)
        found.append(Sent("pipeline", "send", "activations and their gradients", times, _edge(job, parts), 1.0))
    if layout.tensor > 1:
        found += _tensor(job, parts, len(blocks))
    if layout.context > 1:
        # keys and values of the other parts for every forward, their gradients back
        share = (layout.context - 1) / layout.context
        size = 2 * job.tokens * layout.context * parts.width // layout.tensor * job.formats.attention
        found.append(Sent("context", "all-gather", "keys and values", len(blocks) * job.forwards, size, share))
        found.append(Sent("context", "reduce-scatter", "their gradients", len(blocks) * job.forwards, size, share))
    if layout.world_size > 1:
        ranks = layout.world_size
        found.append(Sent("world", "all-reduce", "loss, count, stop", 1, SMALL, 2 * (ranks - 1) / ranks))
    return [each for each in found if each.sent]


def _data(job: Job, root: int, inner: int, number: int) -> list[Sent]:
    layout = job.layout
    all_ranks, shard, replicate = layout.averaged, job.parts, layout.replicate
    if all_ranks == 1:
        return []
    if not job.sharded:
        reduce = Sent(
            "replicate", "all-reduce", "gradients", 1, (root + inner) * number, 2 * (all_ranks - 1) / all_ranks
        )
        if job.strategy != "optimizer":
            return [reduce]
        share = (all_ranks - 1) / all_ranks
        return [reduce, Sent("replicate", "broadcast", "updated weights", 1, (root + inner) * number, share)]
    found = []
    if shard > 1:
        share = (shard - 1) / shard
        # what is used first and last stays from forward to backward; with `full` a block comes twice
        twice = 2 if job.strategy == "full" else 1
        found = [
            Sent("shard", "all-gather", "weights of blocks", twice * job.forwards, inner * job.gathered, share),
            Sent("shard", "all-gather", "weights of embedding and output", job.forwards, root * job.gathered, share),
            Sent("shard", "reduce-scatter", "gradients", 1, (root + inner) * number, share),
        ]
    if replicate > 1:
        share = 2 * (replicate - 1) / replicate
        found.append(Sent("replicate", "all-reduce", "gradients", 1, (root + inner) * number // shard, share))
    return found


def _tensor(job: Job, parts: Parts, blocks: int) -> list[Sent]:
    ranks = job.layout.tensor
    size = job.tokens * parts.width * (job.formats.product if job.cast else job.stream)
    # after attention and after the feed-forward, forward and backward; recomputation does the forward's again
    times = blocks * job.forwards * (6 if job.recompute == "full" else 4)
    ends = 2 * job.forwards
    if job.sequence_parallel:
        share = (ranks - 1) / ranks
        return [
            Sent("tensor", "all-gather", "activations", times + ends, size, share),
            Sent("tensor", "reduce-scatter", "activations", times + ends, size, share),
        ]
    return [Sent("tensor", "all-reduce", "activations", times + ends, size, 2 * (ranks - 1) / ranks)]


def _edge(job: Job, parts: Parts) -> int:
    return job.tokens * parts.width * job.stream


def parameter_server(job: Job, parts: Parts) -> int:
    """Bytes over the link of one server that takes the gradients of all data ranks and sends the weights back."""
    return 2 * (job.layout.averaged - 1) * parts.weights * job.formats.weights


def total(sent: list[Sent]) -> int:
    """All bytes that the rank sends."""
    return sum(each.sent for each in sent)
