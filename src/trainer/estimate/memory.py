"""Bytes of one rank at the moments of an update that can be its peak."""

from trainer.estimate.bubble import in_flight, stages_per_rank
from trainer.estimate.job import Job
from trainer.estimate.parts import Part, Parts


class Moment:
    """What one rank holds at one moment of an update, in bytes.

    `gathered`: whole weights of other ranks' parts; `copies`: weights in autocast's format; `working`: what lives
    shorter than a forward.
    """

    FIELDS = ("parameters", "gathered", "copies", "gradients", "optimizer", "activations", "loss", "working", "batch")
    __slots__ = ("name", *FIELDS)
    parameters: int
    gathered: int
    copies: int
    gradients: int
    optimizer: int
    activations: int
    loss: int
    working: int
    batch: int

    def __init__(self, name: str, **sizes: int) -> None:
        self.name = name
        for field in self.FIELDS:
            setattr(self, field, sizes.get(field, 0))

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, field) for field in self.FIELDS)

    def to_dict(self) -> dict[str, object]:
        """For JSON: the name, every field, the total."""
        fields = {field: getattr(self, field) for field in self.FIELDS}
        return {"moment": self.name, **fields, "total": self.total}


def peak(job: Job, parts: Parts) -> Moment:
    """The largest moment of the fullest rank."""
    ranks = job.layout.pipeline
    stages = sorted({0, min(1, ranks - 1), ranks - 1})  # those between hold less in flight, and no ends
    return max((moment for stage in stages for moment in moments(job, parts, stage)), key=lambda each: each.total)


def moments(job: Job, parts: Parts, stage: int) -> list[Moment]:
    """The candidates of the rank that has pipeline stage `stage`, in the order in which they come."""
    first, last = stage == 0, stage == job.layout.pipeline - 1
    return _Rank(job, parts, stage, first, last).moments()


def blocks_of_stage(blocks: int, ranks: int, stage: int) -> range:
    """Which blocks the rank of `stage` has, where they are spread evenly; the first stages take what is left over."""
    size, over = divmod(blocks, ranks)
    start = stage * size + min(stage, over)
    return range(start, start + size + (1 if stage < over else 0))


class _Rank:
    def __init__(self, job: Job, parts: Parts, stage: int, first: bool, last: bool) -> None:
        self.job = job
        self.parts = parts
        chosen = blocks_of_stage(len(parts.blocks), job.layout.pipeline, stage)
        self.blocks = [parts.blocks[index] for index in chosen]
        self.ends = ([parts.first] if first else []) + ([parts.last] if last else [])
        self.first, self.last = first, last
        self.number = job.formats.weights
        self.shard = job.parts
        self.flying = in_flight(job.schedule, job.layout.pipeline, stage, job.forwards, job.virtual)
        own = [*self.blocks, *self.ends]
        self.weights = sum(part.own for part in own)
        self.matrices = sum(part.matrices for part in self.blocks)
        self.copied = sum(part.matrices for part in self.ends)
        self.root = sum(part.own for part in self.ends)
        self.cast = job.formats.product if job.cast else 0
        self.kept = [self.kept_by(index, part) for index, part in enumerate(self.blocks)]

    def kept_by(self, index: int, part: Part) -> int:
        """Bytes of a block between its forward and its backward."""
        how = self.job.recompute
        if how == "none" or (how == "every" and index % self.job.every):
            return part.kept
        return min(part.kept, part.entry + (part.selected if how == "selective" else 0))

    def moments(self) -> list[Moment]:
        job, number = self.job, self.number
        steady = {
            "parameters": self.weights * number // self.shard,
            "optimizer": self.states(),
            "batch": job.forwards * job.micro * self.parts.sample,
        }
        if job.layout.averaged > 1 and not job.sharded:
            # DDP's buckets; what backward makes within no_sync lies beside them
            kept_always = self.weights * number * min(2, job.forwards)
        elif job.forwards > 1:
            kept_always = self.weights * number  # of the micro-batches before
        else:
            kept_always = 0
        all_kept = sum(self.kept) + sum(part.kept for part in self.ends)
        # of micro-batches that wait for their backward: what they keep, and the stage's input and output
        waiting = (self.flying - 1) * all_kept
        if job.layout.pipeline > 1:
            waiting += 2 * self.flying * stages_per_rank(job.schedule, job.virtual) * self.blocks[0].entry
        casts = self.casts()
        gathered = self.gathered(0)
        block = max(self.blocks, key=lambda part: part.kept, default=None)
        found = []
        if block is not None:
            found.append(
                Moment(
                    "end of the forward",
                    **steady,
                    gathered=gathered + self.unit(block, 2),
                    copies=self.made(),
                    gradients=kept_always,
                    activations=all_kept + waiting,
                    working=block.kept - self.kept[-1] + block.entry,
                )
            )
        if self.last:
            found.append(
                Moment(
                    "loss",
                    **steady,
                    gathered=gathered,
                    copies=casts,
                    gradients=kept_always,
                    activations=all_kept + waiting,
                    loss=self.parts.loss,
                )
            )
        found += self.backward(steady, kept_always, waiting)
        gradients = max(kept_always if not job.sharded else 0, self.weights * number // self.shard)
        found.append(Moment("optimizer", **steady, gradients=gradients))
        return found

    def backward(self, steady: dict[str, int], kept_always: int, waiting: int) -> list[Moment]:
        """One for each block, from the last to the first, and the end."""
        job, number = self.job, self.number
        left = sum(self.kept) + (self.parts.first.kept if self.first else 0)
        copies = self.casts()
        # gradients that are there already; a tied output's is the embedding's
        ends = max(self.parts.last.own, self.parts.last.matrices) if self.last else 0
        done = 0
        sharded = self.shard > 1
        found = []
        for index in reversed(range(len(self.blocks))):
            part = self.blocks[index]
            gradients = (ends + done) * number
            if sharded:  # the block before is on its way to the other ranks
                gradients = (ends + done // self.shard + (part.own if done else 0)) * number
            found.append(
                Moment(
                    f"backward of block {index}",
                    **steady,
                    gathered=self.gathered(index) + self.unit(part, 2),
                    copies=copies,
                    gradients=max(kept_always, gradients),
                    activations=left + waiting,
                    working=part.kept - self.kept[index] + part.working,
                )
            )
            left -= self.kept[index]
            if self.kept[index] == part.kept:
                copies -= part.matrices * self.cast
            done += part.own
        root = 2 * self.root * number if sharded else 0
        end = self.weights * number // self.shard + root if sharded else self.weights * number
        working = self.parts.first.working if self.first else 0
        gathered = self.root * job.gathered if sharded else 0
        found.append(
            Moment(
                "end of the backward",
                **steady,
                gathered=gathered,
                gradients=max(kept_always, end),
                activations=waiting,
                working=working,
            )
        )
        return found

    def states(self) -> int:
        """Bytes of the optimizer's state, and of averaged weights, which every copy has whole."""
        job = self.job
        matrices = sum(part.matrices for part in self.blocks) if job.matrix_states != job.states else 0
        numbers = (self.weights - matrices) * job.states + matrices * job.matrix_states
        over = job.layout.averaged if job.strategy == "optimizer" else self.shard
        average = self.weights // self.shard if job.averaged else 0
        return (numbers // over + average) * self.number

    def casts(self) -> int:
        """Bytes of weights in autocast's format that backward needs: of blocks that are not recomputed, and the
        output's."""
        blocks = sum(part.matrices for part, kept in zip(self.blocks, self.kept, strict=True) if kept == part.kept)
        return (blocks + self.copied) * self.cast

    def made(self) -> int:
        """The same within the forward, where autocast keeps all that it made."""
        return (self.matrices + self.copied) * self.cast

    def gathered(self, index: int) -> int:
        """Bytes of whole weights beside a block's own: what is used first and last, and with strategy `gradients` all
        blocks that still wait for their backward."""
        if self.shard == 1:
            return 0
        blocks = sum(part.own for part in self.blocks) if self.job.strategy == "gradients" else 0
        return (self.root + blocks) * self.job.gathered

    def unit(self, part: Part, times: int) -> int:
        """Bytes of a block that is gathered, in the buffer that arrives and as its weights, or while the next one
        arrives."""
        if self.job.strategy != "full" or self.shard == 1:
            return 0
        return times * part.own * self.job.gathered
