"""Small models whose number formats have a known right answer, on one rank or several, however they are cut."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainer.mesh import Layout
from trainer.models.plan import Plan
from trainer.optim import build_optimizer
from trainer.parallel import parallelize
from trainer.precision import LossScale, Policy
from trainer.precision.rounding import Rounding
from trainer.schema import Optim, Parallel
from trainer.step import Step

CPU = torch.device("cpu")
ROWS = 4
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Cut(NamedTuple):
    """Ranks, what each keeps, ranks to a copy (0: all), stages."""

    ranks: int
    strategy: str = "ddp"
    shard: int = 0
    pipeline: int = 1

    def layout(self) -> Layout:
        """Its degrees."""
        data = self.ranks // self.pipeline
        shard = (self.shard or data) if self.strategy != "ddp" else 1
        return Layout(pipeline=self.pipeline, replicate=data // shard, shard=shard)

    def settings(self) -> Parallel:
        """As the section of a run file."""
        return Parallel(strategy=self.strategy, shard=self.shard, pipeline=self.pipeline, schedule="gpipe")

    @property
    def name(self) -> str:
        """As in the table."""
        inside = f" {self.ranks // self.shard} x {self.shard}" if self.shard else ""
        stages = f", {self.pipeline} stages" if self.pipeline > 1 else ""
        return f"{self.strategy}{inside}{stages}, {self.ranks} ranks" if self.ranks > 1 else "one process"


CUTS = [
    Cut(1),
    *(Cut(ranks, strategy) for ranks in (2, 4) for strategy in ("ddp", "gradients", "full")),
    Cut(4, "full", 2),
]
STAGED = [Cut(2, pipeline=2), Cut(4, pipeline=2), Cut(4, "full", pipeline=2)]


class Column(nn.Module):
    """y = x w for w (ROWS, 1): the gradient of row r is the sum of x times that of y's element r."""

    def __init__(self, start: float) -> None:
        super().__init__()
        first = nn.Linear(1, ROWS, bias=False)
        nn.init.constant_(first.weight, start)
        self.blocks = nn.ModuleList([first])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def plan(self) -> Plan:
        """A block to a layer."""
        return Plan([f"blocks.{index}" for index in range(len(self.blocks))], begin="", end="")


class Stages(Column):
    """Two layers, for two stages of a pipeline: a large x overflows the first one's gradient and no other."""

    def __init__(self) -> None:
        super().__init__(2.0**-8)
        second = nn.Linear(ROWS, ROWS, bias=False)
        nn.init.eye_(second.weight)
        self.blocks.append(second)


def weighted(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Of (x, v): the sum of v y, one counted item. Its gradient by y is v."""
    x, v = batch
    return (model(x).float() * v).sum(), torch.tensor(1)


def item(x: float, v: list[float]) -> tuple[Any, int]:
    """A micro-batch of one sample."""
    return (torch.full((1, 1), x), torch.tensor([v])), 1


def make(
    model: nn.Module,
    cut: Cut,
    compute: str,
    *,
    weights: str = "fp32",
    scale: LossScale | None = None,
    gathered: str = "",
    update: str = "stochastic",
    optim: Optim | None = None,
) -> Step:
    """A step over it, cut, in these formats; SGD with a rate of 0.1 unless another is given."""
    low = weights == "bf16"
    policy = Policy(
        FORMATS[compute],
        FORMATS[weights],
        scale=scale,
        gathered=FORMATS[gathered] if gathered else None,
        rounding=Rounding(update, 0) if low else None,
    )
    policy.cast(model, CPU)
    parallel = parallelize(model, weighted, cut.layout(), cut.settings(), CPU, gathered=policy.gathered)
    optim = optim or Optim(name="sgd", lr=0.1, weight_decay=0.0)
    optimizers = build_optimizer(model, optim, CPU)
    policy.keep_small_steps(optimizers, model)
    return Step(parallel, optimizers, policy, CPU, clip=0.0)


def whole(model: nn.Module) -> dict[str, list[float]]:
    """Every weight of it that this rank has parts of; collective where it is sharded."""
    found = {}
    for name, parameter in model.named_parameters():
        value: Any = parameter.detach()
        full: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
        found[name] = full.flatten().tolist()
    return found


FIRST = "blocks.0.weight"


class Windows(NamedTuple):
    """After each of some updates: the weights, the scale, whether it was applied; were all losses finite?"""

    weights: list[dict[str, list[float]]]
    scales: list[float]
    applied: list[bool]
    finite_losses: bool


def overflow(rank: int, count: int, cut: Cut, gathered: str = "") -> Windows:
    """Three updates of weights 1 with gradient 1, scale 8; in the second the last rank's sample has a gradient of
    10000 for the last row, which scaled is infinite in fp16. Right: weights 0.9, 0.9, 0.8 and scale 8, 4, 4."""
    model = Column(1.0)
    step = make(model, cut, "fp16", scale=LossScale(8.0, 2000, 1.0), gathered=gathered)
    samples = []
    for update in range(3):
        large = update == 1 and rank == count - 1
        samples.append([item(1.0, [1.0] * (ROWS - 1) + [1e4 if large else 1.0])])
    return _windows(model, step, samples, float(count))


def overflow_on_a_stage(rank: int, count: int, cut: Cut) -> Windows:
    """The same of two layers, where x is 30000 once: only the first layer's gradient is infinite. All ranks give the
    same sample."""
    model = Stages()
    step = make(model, cut, "fp16", scale=LossScale(8.0, 2000, 1.0))
    samples = [[item(3e4 if update == 1 else 1.0, [1.0] * ROWS)] for update in range(3)]
    return _windows(model, step, samples, float(cut.layout().data_ranks))


def _windows(model: nn.Module, step: Step, samples: list[list[Any]], divisor: float) -> Windows:
    assert step.policy.scale is not None
    found = Windows([], [], [], True)
    finite = True
    for sample in samples:
        outcome = step(sample, divisor, 1.0, False)
        finite = finite and abs(outcome.loss) < 1e30
        found.weights.append(whole(model))
        found.scales.append(step.policy.scale.scale)
        found.applied.append(outcome.applied)
    return found._replace(finite_losses=finite)


def smallest(rank: int, count: int, cut: Cut, scaled: bool, gathered: str = "") -> list[float]:
    """Weights that start at 0 after one update with rate 1 and gradients 2^-23 ... 2^-26, made in fp16. Right: the
    negative gradients with the scale of 65536; without it 0 from 2^-25 on."""
    model = Column(0.0)
    scale = LossScale(65536.0, 2000, 1.0) if scaled else None
    step = make(model, cut, "fp16", scale=scale, gathered=gathered, optim=Optim(name="sgd", lr=1.0, weight_decay=0.0))
    step([item(2.0**-12, [2.0 ** -(11 + row) for row in range(ROWS)])], float(count), 1.0, False)
    return whole(model)[FIRST]


def ones(rank: int, count: int, cut: Cut, weights: str, gathered: str) -> float:
    """Gradient of a row over 512 forwards in bf16 with gradient 1 each, and 512 more on every other rank: their mean,
    which is 1; adding up in bf16 gives a half."""
    model = Column(0.0)
    step = make(model, cut, "bf16", weights=weights, gathered=gathered)
    outcome = step([item(1.0, [1.0] * ROWS)] * 512, 512.0 * count, 1.0, False)
    return outcome.grad_norm / math.sqrt(ROWS)


def two_hundred(rank: int, count: int, cut: Cut, weights: str, update: str) -> list[float]:
    """Weights of 1 after 200 updates of AdamW at 1e-3 with gradients of 0.5 to 1.5. Right: 0.8."""
    model = Column(1.0)
    optim = Optim(lr=1e-3, betas=[0.9, 0.999], weight_decay=0.0)
    step = make(model, cut, "bf16", weights=weights, update=update, optim=optim)
    for _ in range(200):
        step([item(1.0, [0.5, 0.75, 1.25, 1.5])], float(count), 1.0, False)
    return whole(model)[FIRST]
