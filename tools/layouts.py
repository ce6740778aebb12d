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
from trainer.schema import Model, Optim, Parallel
from trainer.step import Step

UPDATES, SAMPLES, SEQUENCE, VOCABULARY = 5, 16, 12, 61
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
MODEL = Model(kind="gpt", layers=2, width=16, heads=2, tied=True)


class Case(NamedTuple):
    """A layout: ranks, what each keeps, ranks to a copy (0: all), samples a forward."""

    ranks: int
    strategy: str
    shard: int
    micro: int

    def layout(self) -> Layout:
        """Its degrees."""
        shard = (self.shard or self.ranks) if self.strategy in ("gradients", "full") else 1
        return Layout(replicate=self.ranks // shard, shard=shard)

    @property
    def name(self) -> str:
        """As in the table."""
        cut = f" {self.ranks // self.shard} x {self.shard}" if self.shard else ""
        return f"{self.strategy}{cut}, {self.ranks} ranks, {SAMPLES // self.ranks // self.micro} forwards"


class Numbers(NamedTuple):
    """Of five updates: losses, gradient norms; the weights afterwards, whole."""

    losses: list[float]
    norms: list[float]
    weights: dict[str, Tensor]


def cases() -> Iterator[Case]:
    """All that are compared."""
    for ranks in (2, 4, 8):
        for micro in (1, 2):
            yield Case(ranks, "ddp", 0, micro)
            yield Case(ranks, "optimizer", 0, micro)
            for strategy in ("gradients", "full"):
                yield Case(ranks, strategy, 0, micro)
                for shard in (2, 4):
                    if shard < ranks:
                        yield Case(ranks, strategy, shard, micro)


def one_process(dtype: str, optimizer: str) -> Numbers:
    """What all are compared with."""
    return updates(0, 1, Case(1, "ddp", 0, 4), dtype, optimizer)


def on(case: Case, dtype: str, optimizer: str) -> Numbers:
    """On that many ranks; what rank 0 has."""
    found: Numbers = on_ranks(case.ranks, updates, case, dtype, optimizer)[0]
    return found


def updates(rank: int, count: int, case: Case, dtype: str, optimizer: str) -> Numbers:
    """One rank of it."""
    torch.manual_seed(7)
    model = MODELS["gpt"](MODEL, VOCABULARY).to(DTYPES[dtype])
    optim = {**OPTIMIZERS, **MORE_OPTIMIZERS, **BF16}[optimizer]
    settings = Parallel(strategy=case.strategy, shard=case.shard)
    cut = parallelize(model, token_loss, case.layout(), settings, CPU)
    policy = Policy(DTYPES[dtype], DTYPES[dtype], None, None)
    step = Step(cut, build_optimizer(model, optim, CPU, cut.spread), policy, CPU, clip=optim.clip)
    outcomes = []
    for update in range(UPDATES):
        batches = [(batch(update, part), case.micro) for part in parts(rank, count, case.micro)]
        outcomes.append(step(batches, float(SAMPLES * SEQUENCE), 1.0, False))
    weights = {name: whole(value) for name, value in model.state_dict().items()}
    return Numbers([each.loss for each in outcomes], [each.grad_norm for each in outcomes], weights)


def parts(rank: int, count: int, micro: int) -> list[range]:
    """The samples of each of this rank's forwards."""
    return [range(first, first + micro) for first in range(rank * micro, SAMPLES, count * micro)]


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
