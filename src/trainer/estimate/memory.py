"""Bytes of one rank at the moments of an update that can be its peak."""

from trainer.estimate.job import Job
from trainer.estimate.parts import Part, Parts
from trainer.estimate.stages import Stage, fullest, stages_of_rank


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
    found = (moment for stages in fullest(job, parts) for moment in _Rank(job, parts, stages).moments())
    return max(found, key=lambda each: each.total)


def moments(job: Job, parts: Parts, rank: int) -> list[Moment]:
    """The candidates of pipeline rank `rank`, in the order in which they come."""
    return _Rank(job, parts, stages_of_rank(job, parts, rank)).moments()


class _Rank:
    def __init__(self, job: Job, parts: Parts, stages: list[Stage]) -> None:
        self.job = job
        self.parts = parts
        self.stages = stages
        self.blocks = [block for stage in stages for block in stage.parts(parts)]
        self.ends = [end for stage in stages for end in stage.ends(parts)]
        self.first, self.last = stages[0].first, any(stage.last for stage in stages)
        self.number = job.formats.weights
        self.shard = job.parts
        own = [*self.blocks, *self.ends]
        self.weights = sum(part.own for part in own)
        self.matrices = sum(part.matrices for part in self.blocks)
        self.copied = sum(part.matrices for part in self.ends)
        self.root = sum(part.own for part in self.ends)
        self.cast = job.formats.product if job.cast else 0
        self.kept = [self.kept_by(index, part) for index, part in enumerate(self.blocks)]
        # a pipeline keeps what the model returned until the micro-batch is through
        self.returned = parts.logits if self.last and job.layout.pipeline > 1 else 0

    def kept_by(self, index: int, part: Part) -> int:
        """Bytes of a block between its forward and its backward."""
        how = self.job.recompute
        if how == "none" or (how == "every" and index % self.job.every):
            return part.kept
        return min(part.kept, part.entry + (part.selected if how == "selective" else 0))

    def kept_of(self, stage: Stage) -> int:
        """Bytes of a stage between forward and backward of a micro-batch, without its ends."""
        start = sum(len(each.blocks) for each in self.stages[: self.stages.index(stage)])
        return sum(self.kept[start : start + len(stage.blocks)])

    def waiting(self) -> int:
        """Bytes of the micro-batches that wait for their backward, but for the one whose turn it is: it has been
        through the rank's last stage."""
        found = 0
        entry = self.blocks[0].entry if self.blocks else 0
        for stage in self.stages:
            each = self.kept_of(stage) + sum(end.kept for end in stage.ends(self.parts))
            if stage.last:
                each += self.parts.logits + self.returned  # log-softmax
            elif self.job.layout.pipeline > 1:
                each += entry  # what goes to the next stage
            found += each * (stage.held - (stage is self.stages[-1]))
            if stage.sends and self.job.schedule != "gpipe":  # sent gradients are let go at the end
                found += self.job.forwards * entry
        return found

    def moments(self) -> list[Moment]:
        """In their order."""
        job, number, stage = self.job, self.number, self.stages[-1]
        steady = {
            "parameters": self.weights * number // self.shard,
            "optimizer": self.states(),
            "batch": job.forwards * job.micro * self.parts.sample,
        }
        if job.layout.averaged > 1 and not job.sharded and job.layout.pipeline == 1:
            # DDP's buckets; what backward makes within no_sync lies beside them
            kept_always = self.weights * number * min(2, job.forwards)
        elif job.forwards > 1 and (job.layout.pipeline == 1 or job.schedule != "gpipe"):
            kept_always = self.weights * number  # of the micro-batches before
        else:
            kept_always = 0
        waiting = self.waiting()
        kept = self.kept_of(stage) + sum(end.kept for end in stage.ends(self.parts))
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
                    activations=kept + waiting,
                    working=block.kept - self.kept[-1] + block.entry,
                )
            )
        if self.last:
            found.append(
                Moment(
                    "loss",
                    **steady,
                    gathered=gathered,
                    copies=self.casts(),
                    gradients=kept_always,
                    activations=kept + waiting,
                    loss=self.parts.loss + self.returned,
                )
            )
        found += self.backward(steady, kept_always, waiting)
        gradients = max(kept_always if not job.sharded else 0, self.weights * number // self.shard)
        found.append(Moment("optimizer", **steady, gradients=gradients))
        return found

    def backward(self, steady: dict[str, int], kept_always: int, waiting: int) -> list[Moment]:
        """One for each block of the rank's last stage, from the last to the first, and the end."""
        job, number, stage = self.job, self.number, self.stages[-1]
        left = self.kept_of(stage) + (self.parts.first.kept if stage.first else 0)
        copies = self.casts()
        # gradients that are there already; a tied output's is the embedding's
        ends = max(self.parts.last.own, self.parts.last.matrices) if self.last else 0
        done = 0
        sharded = self.shard > 1
        found = []
        for index in reversed(range(len(self.blocks) - len(stage.blocks), len(self.blocks))):
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
                    loss=self.returned,
                    working=part.kept - self.kept[index] + part.working,
                )
            )
            left -= self.kept[index]
            if self.kept[index] == part.kept:
                copies -= part.matrices * self.cast
            done += part.own
        root = 2 * self.root * number if sharded else 0
        end = self.weights * number // self.shard + root if sharded else self.weights * number
        found.append(
            Moment(
                "end of the backward",
                **steady,
                gathered=self.root * job.gathered if sharded else 0,
                gradients=max(kept_always, end),
                activations=waiting,
                working=self.parts.first.working if self.first else 0,
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
