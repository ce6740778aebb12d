"""What every contender of tools/bench_step.py is given: a model, batches, an optimizer, a schedule."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

Block = Callable[[int], float]  # runs n updates, returns the last loss

MODELS: dict[str, dict[str, Any]] = {
    # a user's own few layers, where nothing but overhead is to be seen
    "tiny": {"layers": 3, "width": 32, "heads": 1, "sequence": 16, "batch": 4, "own": True},
    "small": {"layers": 4, "width": 256, "heads": 4, "sequence": 128, "batch": 8},
}


class Absent(Exception):
    """Why a contender does not take part; whatever else it raises ends the benchmark."""


class Residual(nn.Module):
    """x + gelu(linear(norm(x)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)  # type: ignore[no-any-return]


class Tiny(nn.Module):
    """Embedding, residual layers, output; (B, S) ids -> (B, S, 257) logits."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(257, width)
        self.layers = nn.ModuleList(Residual(width) for _ in range(layers))
        self.output = nn.Linear(width, 257)

    def plan(self) -> Any:
        """Cut between the layers."""
        from trainer.models.plan import Plan

        blocks = [f"layers.{number}" for number in range(len(self.layers))]
        return Plan(blocks, begin="embedding", end="output", first=("embedding",), last=("output",))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.output(hidden)  # type: ignore[no-any-return]


class Work:
    """One model size with its token file in `folder`, which `prepare` writes; the same model and batches for all.

    `rank` of `ranks`: takes its own part of every batch; `strategy`: as `parallel.strategy`, or pipeline, whose ranks
    take all of it, in `micro_batches`.
    """

    micro_batches = 4

    def __init__(
        self, name: str, folder: Path, updates: int, *, rank: int = 0, ranks: int = 1, strategy: str = "ddp"
    ) -> None:
        from trainer.config import resolve

        size = MODELS[name]
        self.folder = folder
        self.updates = updates
        self.rank, self.ranks, self.strategy = rank, ranks, strategy
        flags = {
            "data.text": str(self.folder / "text.txt"),
            "data.validation": str(self.folder / "held.txt"),
            "data.sequence": size["sequence"],
            "batch.size": size["batch"],
            "model.layers": size["layers"],
            "model.width": size["width"],
            "model.heads": size["heads"],
            "run.folder": str(self.folder / "run"),
            "run.steps": updates,
            "run.threads": torch.get_num_threads(),
            "precision.compute": "fp32",
            "optim.warmup": 10,
            "data.shuffle": "false",
            "log.progress": "lines",
            "log.every": 10**9,
            "checkpoint.final": "false",
            "run.device": "cpu",
        }
        self.staged = strategy == "pipeline"
        if self.staged:
            cut = f"{size['layers'] - size['layers'] // 2},{size['layers'] // 2}"
            flags |= {"parallel.pipeline": ranks, "parallel.schedule": "1f1b", "parallel.cut": cut}
            flags |= {"batch.micro": size["batch"] // self.micro_batches}
        else:
            flags |= {"parallel.strategy": strategy}
        if size.get("own"):
            flags |= {
                "model.build": "tools.step_work:Tiny",
                "model.options.layers": size["layers"],
                "model.options.width": size["width"],
            }
        self.config = resolve(None, [(key, str(value)) for key, value in flags.items()], {}).config
        self.parts = 1 if self.staged else ranks  # of a batch
        self.batch, self.sequence = size["batch"] // self.parts, size["sequence"]

    def prepare(self) -> None:
        """Text, tokens, and what the trainer makes of them."""
        from trainer.data.datasets import open_data

        (self.folder / "run").mkdir()
        text = numpy.random.default_rng(0).integers(32, 127, 2_000_000, dtype=numpy.uint8).tobytes()
        (self.folder / "text.txt").write_bytes(text)
        (self.folder / "held.txt").write_bytes(text[:10_000])
        numpy.frombuffer(text, numpy.uint8).astype(numpy.uint16).tofile(self.folder / "tokens.bin")
        open_data(self.config, self.folder / "run", prepare=True)

    def open(self) -> None:
        """The token file, as a hand-written loop would map it."""
        self.map = numpy.memmap(self.folder / "tokens.bin", numpy.uint16, "r")

    def model(self) -> nn.Module:
        from trainer.models import build_model

        torch.manual_seed(0)
        return build_model(self.config.model, vocabulary=257)

    def fetch(self, update: int) -> tuple[Tensor, Tensor]:
        """This rank's part of the batch of one update, in file order."""
        span = self.sequence
        start = (update * self.parts + self.rank % self.parts) * self.batch * span
        window = torch.from_numpy(self.map[start : start + self.batch * span + 1].astype(numpy.int64))
        return window[:-1].view(self.batch, span), window[1:].view(self.batch, span)

    def mean(self, loss: Tensor) -> float:
        """Of the losses of all ranks, on the host: what a run reports."""
        if self.ranks > 1:
            loss = loss.detach() / self.ranks
            torch.distributed.all_reduce(loss)
        return loss.item()

    def rate(self, update: int) -> float:
        """Linear warm-up of 10 updates, then a cosine to 0."""
        if update < 10:
            return (update + 1) / 10
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (update - 10) / (self.updates - 10))))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    def schedule(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate)
