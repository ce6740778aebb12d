"""Layouts of a run, and five updates of each: a tied GPT, accumulation, ragged documents, clipping, no dropout."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.beds.ranks import on_ranks
from trainer.checkpoint.parts import is_part
from trainer.mesh import Layout
from trainer.models import MODELS
from trainer.models.loss import token_loss
from trainer.optim import build_optimizer
from trainer.parallel import parallelize
from trainer.precision import Policy
from trainer.schedules import SPLIT_BACKWARD
from trainer.schema import Memory, Model, Optim, Parallel
from trainer.step import Step

UPDATES, SAMPLES, SEQUENCE, VOCABULARY = 5, 16, 12, 64
CPU = torch.device("cpu")
DTYPES = {"fp64": torch.float64, "fp32": torch.float32}
OPTIMIZERS = {
    "sgd": Optim(name="sgd", lr=0.5, momentum=0.9, weight_decay=0.01, clip=0.5),
    "adamw": Optim(name="adamw", lr=0.01, weight_decay=0.1, clip=0.5),
}
# compared on fewer layouts, by prove_optimizers
MORE_OPTIMIZERS = {
    "muon": Optim(name="muon", lr=0.01, momentum=0.9, weight_decay=0.1, clip=0.5),
    "lion": Optim(name="lion", lr=0.003, betas=[0.9, 0.99], weight_decay=0.1, clip=0.5),
    "adafactor": Optim(name="adafactor", lr=0.01, weight_decay=0.1, clip=0.5),
    "schedule_free": Optim(name="schedule_free", lr=0.01, weight_decay=0.1, clip=0.5, schedule="constant"),
}
# as on CUDA; not among those that have to agree
BF16 = {"muon_bf16": Optim(name="muon", lr=0.01, momentum=0.9, clip=0.5, matrix_precision="bf16")}
SCHEDULES = (("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zero_bubble", 2), ("zbv", 2), ("dualpipev", 2))
MODEL = Model(kind="gpt", layers=4, width=16, heads=4, tied=True)


class Case(NamedTuple):
    """A layout: data ranks, what each keeps, ranks to a copy (0: all), samples a forward; the other degrees; the
    schedule of a pipeline and its stages on each rank; what is recomputed."""

    data: int
    strategy: str
    shard: int
    micro: int
    pipeline: int = 1
    context: int = 1
    tensor: int = 1
    schedule: str = "1f1b"
    virtual: int = 1
    tied: bool = True
    sequence: bool = False
    loss: bool = True
    recompute: str = "none"

    def layout(self) -> Layout:
        """Its degrees."""
        shard = (self.shard or self.data) if self.strategy in ("gradients", "full") else 1
        return Layout(
            pipeline=self.pipeline,
            replicate=self.data // shard,
            shard=shard,
            context=self.context,
            tensor=self.tensor,
        )

    def model(self) -> Model:
        """What is cut: with a block for every stage."""
        return Model(**{**vars(MODEL), "tied": self.tied, "layers": max(MODEL.layers, self.pipeline * self.virtual)})

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.layout().world_size

    def settings(self) -> Parallel:
        """As the section of a run file."""
        return Parallel(
            strategy=self.strategy,
            shard=self.shard,
            pipeline=self.pipeline,
            context=self.context,
            tensor=self.tensor,
            schedule=self.schedule,
            virtual=self.virtual,
            sequence_parallel=self.sequence,
            loss_parallel=self.loss,
        )

    @property
    def name(self) -> str:
        """As in the table."""
        cut = f" {self.data // self.shard} x {self.shard}" if self.shard else f" {self.data}"
        words = [f"{self.strategy}{cut}"] if self.data > 1 else []
        if self.pipeline > 1:
            words.append(f"pipeline {self.pipeline}{f' x {self.virtual}' if self.virtual > 1 else ''} {self.schedule}")
        words += [f"{name} {size}" for name, size in (("context", self.context), ("tensor", self.tensor)) if size > 1]
        words += [] if self.tied else ["untied"]
        words += ["sequence"] if self.sequence else []
        words += [] if self.loss else ["whole logits"]
        words += [] if self.recompute == "none" else [f"recompute {self.recompute}"]
        return ", ".join((*words, f"{SAMPLES // self.data // self.micro} forwards"))


class Numbers(NamedTuple):
    """Of five updates: losses, gradient norms; the weights afterwards, whole."""

    losses: list[float]
    norms: list[float]
    weights: dict[str, Tensor]


def cases() -> Iterator[Case]:
    """Those of the table: every way to cut, alone and in products."""
    for ranks in (2, 4, 8):
        for strategy in ("ddp", "optimizer", "gradients", "full"):
            yield Case(ranks, strategy, 0, 1)
    yield Case(4, "gradients", 2, 2)
    yield Case(4, "full", 2, 2)
    yield Case(8, "full", 2, 1)
    for name, virtual in SCHEDULES:
        yield Case(1, "ddp", 0, 2, pipeline=2, schedule=name, virtual=virtual)
    yield Case(1, "ddp", 0, 16, pipeline=4, schedule="gpipe")
    yield Case(1, "ddp", 0, 2, pipeline=4)
    yield Case(1, "ddp", 0, 2, pipeline=2, tied=False)
    for name, virtual in (("1f1b", 1), ("interleaved", 2), ("zbv", 2)):
        yield Case(2, "ddp", 0, 1, pipeline=2, schedule=name, virtual=virtual)
    yield Case(2, "full", 0, 1, pipeline=2)
    yield Case(2, "gradients", 0, 1, pipeline=2, schedule="interleaved", virtual=2)
    yield Case(2, "optimizer", 0, 2, pipeline=2)
    yield Case(4, "full", 2, 1, pipeline=2)
    for sequence in (False, True):
        yield Case(1, "ddp", 0, 8, tensor=2, sequence=sequence)
        yield Case(1, "ddp", 0, 8, tensor=4, sequence=sequence)
        yield Case(2, "full", 0, 4, tensor=2, sequence=sequence)
    yield Case(1, "ddp", 0, 8, tensor=2, loss=False)
    yield Case(2, "ddp", 0, 4, tensor=2)
    yield Case(4, "full", 2, 2, tensor=2)
    for context in (2, 4):
        yield Case(1, "ddp", 0, 8, context=context)
    yield Case(2, "full", 0, 4, context=2)
    yield Case(1, "ddp", 0, 8, context=2, tensor=2)
    yield Case(1, "ddp", 0, 4, pipeline=2, tensor=2)
    yield Case(1, "ddp", 0, 4, pipeline=2, context=2)
    yield Case(2, "full", 0, 4, pipeline=2, tensor=2)
    yield Case(1, "ddp", 0, 4, pipeline=2, context=2, tensor=2, sequence=True)
    yield Case(2, "full", 0, 2, recompute="selective")
    yield Case(1, "ddp", 0, 2, pipeline=2, schedule="zero_bubble", virtual=2, recompute="full")
    yield Case(1, "ddp", 0, 8, tensor=2, sequence=True, recompute="every")


def more() -> Iterator[Case]:
    """All others that are compared on request."""
    found = dict.fromkeys(cases())
    for source in (over_data, pipelines, inner_cases, products, recomputed):
        for case in source():
            if case not in found:
                found[case] = None
                yield case


def over_data() -> Iterator[Case]:
    """Copies and shards."""
    for ranks in (2, 4, 8):
        for micro in (1, 2):
            yield Case(ranks, "ddp", 0, micro)
            yield Case(ranks, "optimizer", 0, micro)
            for strategy in ("gradients", "full"):
                yield Case(ranks, strategy, 0, micro)
                for shard in (2, 4):
                    if shard < ranks:
                        yield Case(ranks, strategy, shard, micro)


def products() -> Iterator[Case]:
    """Stages of which each is cut further."""
    yield Case(2, "optimizer", 0, 2, pipeline=2)
    yield Case(2, "optimizer", 0, 4, context=2)
    for name, virtual in (("1f1b", 1), ("interleaved", 2), ("zbv", 2)):
        yield Case(1, "ddp", 0, 4, pipeline=2, tensor=2, schedule=name, virtual=virtual)
        yield Case(1, "ddp", 0, 4, pipeline=2, context=2, schedule=name, virtual=virtual)
    for strategy in ("ddp", "gradients", "full"):
        yield Case(2, strategy, 0, 4, pipeline=2, tensor=2)
        yield Case(2, strategy, 0, 4, pipeline=2, context=2)
    yield Case(2, "full", 0, 4, pipeline=2, tensor=2, sequence=True)
    yield Case(1, "ddp", 0, 4, pipeline=2, context=2, tensor=2, sequence=True)
    yield Case(1, "ddp", 0, 4, pipeline=4, tensor=2)
    yield Case(1, "ddp", 0, 8, pipeline=2, tensor=4)


def recomputed() -> Iterator[Case]:
    """Blocks that are made again in backward."""
    for mode in ("full", "every", "selective"):
        yield Case(2, "full", 0, 2, recompute=mode)
        schedule = "interleaved" if mode == "selective" else "zero_bubble"
        yield Case(1, "ddp", 0, 2, pipeline=2, schedule=schedule, virtual=2, recompute=mode)
        yield Case(1, "ddp", 0, 8, tensor=2, sequence=True, recompute=mode)
    yield Case(2, "ddp", 0, 2, recompute="full")
    yield Case(1, "ddp", 0, 8, context=2, recompute="full")
    yield Case(2, "full", 0, 4, tensor=2, sequence=True, recompute="full")
    yield Case(2, "full", 0, 2, pipeline=2, recompute="full")


def inner_cases() -> Iterator[Case]:
    """Those in which ranks share samples: the matrices, the tokens or both are cut."""
    for tensor in (2, 4):
        for sequence in (False, True):
            for loss in (False, True):
                yield Case(1, "ddp", 0, 8, tensor=tensor, sequence=sequence, loss=loss)
    for context in (2, 4):
        yield Case(1, "ddp", 0, 8, context=context)
        yield Case(1, "full", 0, 8, context=context)
    yield Case(2, "ddp", 0, 4, context=2)
    yield Case(2, "full", 2, 4, context=2)
    for sequence in (False, True):
        for strategy in ("ddp", "gradients", "full"):
            yield Case(2, strategy, 0, 4, tensor=2, sequence=sequence)
            yield Case(4, strategy, 0, 2, tensor=2, sequence=sequence)
        yield Case(4, "full", 2, 2, tensor=2, sequence=sequence)
        yield Case(2, "full", 2, 4, tensor=4, sequence=sequence)
        yield Case(1, "ddp", 0, 8, context=2, tensor=2, sequence=sequence)
        yield Case(2, "ddp", 0, 4, context=2, tensor=2, sequence=sequence)
        yield Case(2, "full", 0, 4, context=2, tensor=2, sequence=sequence)


def pipelines() -> Iterator[Case]:
    """Every schedule, alone and over data ranks; layer after layer as the pipeline of one micro-batch."""
    yield Case(1, "ddp", 0, 16, pipeline=4, schedule="gpipe")
    yield Case(1, "ddp", 0, 2, pipeline=2, schedule="zero_bubble", virtual=4)
    for name, virtual in SCHEDULES:
        for ranks in (2, 4):
            yield Case(1, "ddp", 0, 2, pipeline=ranks, schedule=name, virtual=virtual)
        yield Case(1, "ddp", 0, 2, pipeline=2, schedule=name, virtual=virtual, tied=False)
        yield Case(2, "ddp", 0, 1, pipeline=2, schedule=name, virtual=virtual)
        # two stages of one rank that share a weight cannot both be sharded
        tied = name not in ("zbv", "dualpipev")
        # weights that are given up after a forward do not go with a backward in two parts
        for strategy in ("gradients",) if name in SPLIT_BACKWARD else ("gradients", "full"):
            yield Case(2, strategy, 0, 1, pipeline=2, schedule=name, virtual=virtual, tied=tied)
    for name, virtual in (("1f1b", 1), ("interleaved", 2), ("zero_bubble", 2)):
        strategy = "gradients" if name in SPLIT_BACKWARD else "full"
        yield Case(4, strategy, 2, 1, pipeline=2, schedule=name, virtual=virtual)
        yield Case(2, strategy, 0, 1, pipeline=4, schedule=name, virtual=virtual)
        yield Case(2, "ddp", 0, 1, pipeline=4, schedule=name, virtual=virtual)
        for sequence in (False, True):
            yield Case(1, "ddp", 0, 2, pipeline=2, tensor=2, schedule=name, virtual=virtual, sequence=sequence)
            yield Case(2, strategy, 0, 2, pipeline=2, tensor=2, schedule=name, virtual=virtual, sequence=sequence)
        yield Case(1, "ddp", 0, 2, pipeline=2, context=2, schedule=name, virtual=virtual)
        yield Case(2, "ddp", 0, 2, pipeline=2, tensor=2, schedule=name, virtual=virtual)
        yield Case(1, "ddp", 0, 2, pipeline=2, context=2, tensor=2, schedule=name, virtual=virtual)


def one_process(dtype: str, optimizer: str, like: Case | None = None) -> Numbers:
    """What all are compared with that cut the same model."""
    model = like.model() if like else MODEL
    return updates(0, 1, Case(1, "ddp", 0, 4, virtual=model.layers, tied=model.tied), dtype, optimizer)


def by_rounding(one: Numbers, dtype: str, optimizer: str, like: Case) -> dict[str, float]:
    """How far one process comes from `one` where it only adds up in another order: the most over forwards of 1, 2, 8
    and all samples."""
    model = like.model()
    rest = (1, 2, 8, SAMPLES)
    cases = [Case(1, "ddp", 0, micro, virtual=model.layers, tied=model.tied) for micro in rest]
    found = [compared(one, updates(0, 1, case, dtype, optimizer)) for case in cases]
    return {name: max(each[name] for each in found) for name in ("loss", "norm", "weights")}


def on(case: Case, dtype: str, optimizer: str) -> Numbers:
    """On that many ranks; the weights of all of them, which have to be the same where several have them."""
    found: list[Numbers] = on_ranks(case.ranks, updates, case, dtype, optimizer)
    weights: dict[str, Tensor] = {}
    for each in found:
        assert each.losses == found[0].losses and each.norms == found[0].norms, "the ranks do not agree"
        for name, value in each.weights.items():
            assert torch.equal(weights.setdefault(name, value), value), f"the ranks differ in {name}"
    return Numbers(found[0].losses, found[0].norms, weights)


def updates(rank: int, count: int, case: Case, dtype: str, optimizer: str) -> Numbers:
    """One rank of it."""
    torch.manual_seed(7)
    model = MODELS["gpt"](case.model(), VOCABULARY).to(DTYPES[dtype])
    optim = {**OPTIMIZERS, **MORE_OPTIMIZERS, **BF16}[optimizer]
    layout = case.layout()
    cut = parallelize(model, token_loss, layout, case.settings(), CPU, memory=Memory(recompute=case.recompute))
    policy = Policy(DTYPES[dtype], DTYPES[dtype], None, None)
    step = Step(cut, build_optimizer(model, optim, CPU, cut.spread), policy, CPU, clip=optim.clip)
    outcomes = []
    for update in range(UPDATES):
        batches = [(batch(update, part), case.micro) for part in parts(layout.data_index(rank), case.data, case.micro)]
        outcomes.append(step(batches, float(SAMPLES * SEQUENCE), 1.0, False))
    weights = {name: whole(value) for name, value in model.state_dict().items()}
    return Numbers([each.loss for each in outcomes], [each.grad_norm for each in outcomes], weights)


def parts(index: int, count: int, micro: int) -> list[range]:
    """The samples of each forward of data rank `index` of `count`."""
    return [range(first, first + micro) for first in range(index * micro, SAMPLES, count * micro)]


def batch(update: int, samples: range) -> dict[str, Tensor]:
    """Of some samples; each counts another number of its tokens, one none."""
    everything = torch.Generator().manual_seed(update)
    ids = torch.randint(VOCABULARY, (SAMPLES, SEQUENCE + 1), generator=everything)
    labels = ids[:, 1:].clone()
    for row in range(SAMPLES):
        labels[row, row * 5 % (SEQUENCE + 1) :] = -100
    chosen = list(samples)
    return {"tokens": ids[chosen, :-1], "labels": labels[chosen]}


def whole(value: Any) -> Tensor:
    """On every rank, on the host."""
    full: Tensor = value.full_tensor() if is_part(value) else value
    return full.detach().clone()


def compared(one: Numbers, other: Numbers) -> dict[str, Any]:
    """Largest relative difference of losses and of norms; of the weights the norm of the difference over the norm, of
    the whole model and of the worst tensor, and its name."""

    def largest(first: list[float], second: list[float]) -> float:
        return max(abs(a - b) / abs(a) for a, b in zip(first, second, strict=True))

    differences = {name: float((value - other.weights[name]).double().norm()) for name, value in one.weights.items()}
    sizes = {name: float(value.double().norm()) for name, value in one.weights.items()}
    worst = max(differences, key=lambda name: differences[name] / (sizes[name] or 1.0))
    model = sum(each**2 for each in differences.values()) ** 0.5 / sum(each**2 for each in sizes.values()) ** 0.5
    return {
        "loss": largest(one.losses, other.losses),
        "norm": largest(one.norms, other.norms),
        "weights": model,
        "worst": differences[worst] / (sizes[worst] or 1.0),
        "worst_tensor": worst,
    }
