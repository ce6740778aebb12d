"""Layouts for a given number of devices of a given size."""

from collections.abc import Iterator

from trainer.estimate import bubble, memory, traffic
from trainer.estimate.job import Job
from trainer.estimate.parts import Parts, parts_of
from trainer.mesh import Layout
from trainer.models.check import key_value_heads
from trainer.schedules import stages_per_rank
from trainer.schema import Model

STRATEGIES = ("ddp", "gradients", "full")
RECOMPUTE = ("none", "full")


class Suggestion:
    """A way to cut the run. `peak`, `sent`: bytes of one rank; `idle`: share of all time that a stage waits;
    `again`: forwards that are computed twice, as a share of all."""

    def __init__(self, job: Job, parts: Parts) -> None:
        self.layout = job.layout
        self.strategy = job.strategy
        self.recompute = job.recompute
        self.forwards = job.forwards
        self.micro = job.micro
        self.peak = memory.peak(job, parts).total
        self.sent = traffic.total(traffic.traffic(job, parts))
        self.idle = bubble.idle_share(job.schedule, job.layout.pipeline, job.forwards, job.virtual)[0]
        self.again = 1.0 if job.recompute == "full" else 0.0

    def beaten_by(self, other: "Suggestion") -> bool:
        """Whether `other` sends less, waits less and computes less, or is equal in some and better in one."""
        mine, theirs = (self.sent, self.idle, self.again), (other.sent, other.idle, other.again)
        return theirs != mine and all(b <= a for a, b in zip(mine, theirs, strict=True))

    def flags(self) -> str:
        """The settings that give this layout."""
        found = [f"--parallel.strategy {self.strategy}"]
        if self.strategy != "ddp" and self.layout.replicate > 1:
            found.append(f"--parallel.shard {self.layout.shard}")
        cut = {"pipeline": self.layout.pipeline, "tensor": self.layout.tensor}
        found += [f"--parallel.{name} {degree}" for name, degree in cut.items() if degree > 1]
        if self.recompute != "none":
            found.append(f"--memory.recompute {self.recompute}")
        return " ".join(found)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        values = {name: value for name, value in self.__dict__.items() if name != "layout"}
        return {"layout": self.layout.shape(), "flags": self.flags(), **values}


def suggestions(
    job: Job, model: Model, vocabulary: int, world: int, room: int, batch: int, *, node: int = 8
) -> list[Suggestion]:
    """Layouts of `world` ranks that need no more than `room` bytes each for an update of `batch` samples; the one that
    sends the least first. Left out is what another one beats in everything. Tensor groups stay within a node of `node`.
    """
    found: list[Suggestion] = []
    for layout, strategy in _layouts(model, world, node):
        share, left = divmod(batch, layout.data_ranks)
        if left or not share:
            continue
        micro = min(job.micro, share)
        if layout.pipeline > 1 and layout.pipeline * stages_per_rank(job.schedule, job.virtual) > model.layers:
            continue
        if layout.pipeline > 1:  # as many micro-batches as keep the stages busy, if the batch has them
            micro = max(1, min(micro, share // (4 * layout.pipeline)))
        if share % micro:
            continue
        for recompute in RECOMPUTE:
            candidate = job.replaced(
                layout, strategy=strategy, recompute=recompute, micro=micro, forwards=share // micro
            )
            made = Suggestion(candidate, parts_of(model, vocabulary, candidate))
            if made.peak <= room:
                found.append(made)
                break  # what fits without computing twice need not
    best: list[Suggestion] = []
    for each in sorted(found, key=lambda one: (one.sent, one.again, one.idle, one.peak)):
        if not any(each.beaten_by(other) for other in best):
            best.append(each)
    return best


def _layouts(model: Model, world: int, node: int) -> Iterator[tuple[Layout, str]]:
    layers = model.layers
    gpt = model.kind == "gpt"
    for tensor in _divisors(world):
        if tensor > node or (tensor > 1 and (not gpt or model.heads % tensor or key_value_heads(model) % tensor)):
            continue
        for pipeline in _divisors(world // tensor):
            if pipeline > layers:
                continue
            data = world // tensor // pipeline
            cut = {"tensor": tensor, "pipeline": pipeline}
            yield Layout(replicate=data, **cut), "ddp"
            for shard in _divisors(data):
                if shard > 1:
                    for strategy in STRATEGIES[1:]:
                        yield Layout(replicate=data // shard, shard=shard, **cut), strategy


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]
