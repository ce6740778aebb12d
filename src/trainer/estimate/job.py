"""A run as far as memory and traffic depend on it: sizes, number formats, how it is cut."""

import os
from collections.abc import Sequence

from trainer.formats import choose_attention, choose_compute
from trainer.mesh import Layout
from trainer.schema import Config

BYTES = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}  # fp8: all but the products themselves
# state kept for each weight, in numbers of the weight's own size; muon: of a matrix (of all else AdamW's)
STATES = {"adamw": 2, "muon": 1, "lion": 1, "adafactor": 0}


class Formats:
    """Bytes of one number: `weights` (gradients and optimizer state too), `product` (what matrix products take and
    give), `attention`, `loss`. `cast`: weights are copied into the product's format for every forward (autocast)."""

    def __init__(self, compute: str, weights: str, attention: str, device: str) -> None:
        self.compute = compute
        self.weights = 8 if compute == "fp64" else BYTES[weights]
        self.product = BYTES[compute]
        self.cast = self.product < self.weights
        self.attention = BYTES[choose_attention(attention, compute, device)]
        self.loss = max(4, self.weights)

    @property
    def norm(self) -> int:
        """What a norm keeps: low formats are normalized in fp32."""
        return max(4, self.weights)


class Job:
    """`micro`: samples of a forward on one rank; `forwards`: micro-batches of an update on one rank."""

    def __init__(
        self,
        *,
        layout: Layout,
        formats: Formats,
        micro: int,
        forwards: int,
        sequence: int,
        strategy: str = "ddp",
        states: int = 2,
        matrix_states: int = 2,
        averaged: bool = False,
        recompute: str = "none",
        every: int = 2,
        schedule: str = "1f1b",
        virtual: int = 0,
        cut: Sequence[int] = (),
        sequence_parallel: bool = False,
        loss_parallel: bool = True,
        gathered: int = 0,
    ) -> None:
        self.layout = layout
        self.formats = formats
        self.micro = micro
        self.forwards = forwards
        self.sequence = sequence
        self.strategy = strategy
        self.states = states
        self.matrix_states = matrix_states
        self.averaged = averaged
        self.recompute = recompute
        self.every = every
        self.schedule = schedule
        self.virtual = virtual
        self.cut = list(cut)
        self.sequence_parallel = sequence_parallel
        self.loss_parallel = loss_parallel
        self.gathered = gathered or formats.weights

    @property
    def tokens(self) -> int:
        """Tokens (or samples) of a forward on one rank."""
        return self.micro * self.sequence // self.layout.context

    @property
    def sharded(self) -> bool:
        """A rank keeps parts of the weights."""
        return self.strategy in ("full", "gradients")

    @property
    def parts(self) -> int:
        """Ranks that keep one copy of the weights between them: those of one sequence are among them."""
        return self.layout.shard * self.layout.context if self.sharded else 1

    @property
    def lean(self) -> bool:
        """Weights arrive in the product's format, and all layers work in it."""
        return self.parts > 1 and self.gathered < self.formats.weights

    @property
    def cast(self) -> bool:
        """Autocast copies weights, and what products take, into their format."""
        return self.formats.cast and not self.lean

    @property
    def stream(self) -> int:
        """Bytes of a number that one block hands to the next."""
        return self.formats.product if self.lean else self.formats.weights

    def replaced(self, layout: Layout, **changes: object) -> "Job":
        """The same run, cut otherwise: into other stages too."""
        values = {name: value for name, value in self.__dict__.items() if name not in ("layout", "cut")} | changes
        return Job(layout=layout, **values)


def job_of(config: Config, layout: Layout, micro: int, forwards: int) -> Job:
    """What the run file says."""
    parallel, precision = config.parallel, config.precision
    device = device_of(config)
    formats = Formats(choose_compute(precision, device)[0], precision.weights, precision.attention, device)
    states = STATES.get(config.optim.name, 2)
    if config.optim.name == "sgd":
        states = 1 if config.optim.momentum else 0
    kahan = 1 if precision.weights == "bf16" and precision.update == "kahan" else 0
    return Job(
        layout=layout,
        formats=formats,
        micro=micro,
        forwards=forwards,
        sequence=sequence_of(config),
        strategy=parallel.strategy,
        states=kahan + (2 if config.optim.name == "muon" else states),
        matrix_states=kahan + states,
        averaged=config.optim.average == "ema",
        recompute=config.memory.recompute,
        every=config.memory.every,
        schedule=parallel.schedule,
        virtual=parallel.virtual,
        cut=parallel.cut,
        loss_parallel=parallel.loss_parallel and not config.model.loss,
        sequence_parallel=parallel.sequence_parallel,
        gathered=formats.product if precision.gathered == "compute" else 0,
    )


def sequence_of(config: Config) -> int:
    """Places of a sample that blocks work on: tokens, patches, or one."""
    if config.model.kind == "vit" and not config.model.build:
        return (config.model.image // config.model.patch) ** 2
    return config.data.sequence if config.model.kind == "gpt" or not config.data.dataset else 1


def device_of(config: Config) -> str:
    """`run.device`; for auto: cuda where this machine shows one."""
    if config.run.device != "auto":
        return config.run.device
    return "cuda" if os.access("/dev/nvidiactl", os.F_OK) else "cpu"
