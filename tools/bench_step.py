"""Time of one update: `trainer train` against a hand-written loop and other trainers, on the same model and batches.

All contenders run interleaved in one process, in blocks; the figure is the median over the blocks, as a ratio to the
hand-written loop of the same run. Every contender does what a real run does at each update: fetch a batch from a
memory-mapped token file, forward, backward, clip the gradient norm, AdamW, learning-rate schedule, loss on the host.
Ours also writes its metrics line and draws its progress, as it always does.

    uv run --group bench python -m tools.bench_step                    both models, all contenders
    uv run python -m tools.bench_step --contenders hand,trainer       without the bench group
    uv run --group bench python -m tools.bench_step --json FILE

The losses of all contenders are compared too: they must agree, or the comparison is of different work.
"""

import argparse
import contextlib
import io
import json
import math
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional

Block = Callable[[int], float]  # runs n updates, returns the last loss

MODELS = {
    # a user's own few layers, where nothing but overhead is to be seen
    "tiny": {"layers": 3, "width": 32, "heads": 1, "sequence": 16, "batch": 4, "own": True},
    "small": {"layers": 4, "width": 256, "heads": 4, "sequence": 128, "batch": 8},
}


class Tiny(nn.Module):
    """Embedding, residual layers, output; (B, S) ids -> (B, S, 257) logits."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(257, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(layers)
        )
        self.output = nn.Linear(width, 257)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return self.output(hidden)  # type: ignore[no-any-return]


class Work:
    """One model size with its token file; makes every contender the same model and the same batches."""

    def __init__(self, name: str, folder: Path, updates: int) -> None:
        from trainer.config import resolve

        size = MODELS[name]
        self.folder = folder / name
        self.folder.mkdir()
        self.updates = updates
        text = numpy.random.default_rng(0).integers(32, 127, 2_000_000, dtype=numpy.uint8).tobytes()
        (self.folder / "text.txt").write_bytes(text)
        (self.folder / "held.txt").write_bytes(text[:10_000])
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
        if size.get("own"):
            flags |= {
                "model.build": "tools.bench_step:Tiny",
                "model.options.layers": size["layers"],
                "model.options.width": size["width"],
            }
        self.config = resolve(None, [(key, str(value)) for key, value in flags.items()], {}).config
        self.batch, self.sequence = size["batch"], size["sequence"]
        self.tokens = numpy.frombuffer(text, numpy.uint8).astype(numpy.uint16)
        self.tokens.tofile(self.folder / "tokens.bin")
        self.map = numpy.memmap(self.folder / "tokens.bin", numpy.uint16, "r")

    def model(self) -> nn.Module:
        from trainer.models import build_model

        torch.manual_seed(0)
        return build_model(self.config.model, vocabulary=257)

    def fetch(self, update: int) -> tuple[Tensor, Tensor]:
        """The batch of one update, in file order, as a hand-written loop would read it."""
        span = self.sequence
        start = update * self.batch * span
        window = torch.from_numpy(self.map[start : start + self.batch * span + 1].astype(numpy.int64))
        return window[:-1].view(self.batch, span), window[1:].view(self.batch, span)

    def rate(self, update: int) -> float:
        """Linear warm-up of 10 updates, then a cosine to 0."""
        if update < 10:
            return (update + 1) / 10
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (update - 10) / (self.updates - 10))))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True)


def loop(work: Work, model: Any, optimizer: Any, schedule: Any, backward: Any, clip: Callable[[], Any]) -> Block:
    """The loop that everybody writes who has a backward, a clip and an optimizer."""
    update = 0

    def block(count: int) -> float:
        nonlocal update
        value = 0.0
        for _ in range(count):
            tokens, labels = work.fetch(update)
            loss = functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
            backward(loss)
            clip()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            value = loss.item()
            update += 1
        return value

    return block


def hand_written(work: Work) -> Block:
    """What an engineer writes without any trainer."""
    model = work.model()
    optimizer = work.optimizer(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, work.rate)
    return loop(
        work, model, optimizer, schedule, Tensor.backward, lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    )


def ours(work: Work) -> Block:
    """The trainer's own loop, assembled as `trainer train` does."""
    from trainer import session
    from trainer.data.datasets import open_data
    from trainer.launch.detect import detect
    from trainer.launch.stop import StopRequest
    from trainer.mesh import plan_batch

    folder = work.folder / "run"
    folder.mkdir()
    data = open_data(work.config, folder, prepare=True)
    training = session.assemble(
        work.config, detect({}), torch.device("cpu"), data, plan_batch(work.config, 1), None, StopRequest()
    )
    updates = iter(training.loop.loader.updates(0))
    training.model.load_state_dict(work.model().state_dict())

    def block(count: int) -> float:
        for _ in range(count):
            since = time.perf_counter()
            training.loop.advance(next(updates), since)
        return training.loop.last_loss

    return block


def accelerate(work: Work) -> Block:
    """Hugging Face Accelerate."""
    from accelerate import Accelerator

    engine = Accelerator(cpu=True)
    inner = work.optimizer(plain := work.model())
    model, optimizer, schedule = engine.prepare(plain, inner, torch.optim.lr_scheduler.LambdaLR(inner, work.rate))
    return loop(
        work, model, optimizer, schedule, engine.backward, lambda: engine.clip_grad_norm_(model.parameters(), 1.0)
    )


def fabric(work: Work) -> Block:
    """Lightning Fabric."""
    from lightning.fabric import Fabric

    engine = Fabric(accelerator="cpu", devices=1)
    inner = work.optimizer(plain := work.model())
    model, optimizer = engine.setup(plain, inner)
    schedule = torch.optim.lr_scheduler.LambdaLR(inner, work.rate)
    return loop(
        work,
        model,
        optimizer,
        schedule,
        engine.backward,
        lambda: engine.clip_gradients(model, optimizer, max_norm=1.0),
    )


def lightning(work: Work) -> Block:
    """Lightning's Trainer; only the time between its first and last batch counts, not the start of `fit`."""
    import lightning as pl

    model = work.model()
    state: dict[str, Any] = {"update": 0, "value": 0.0, "optimizer": None}

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> Tensor:
            tokens, labels = batch
            loss = functional.cross_entropy(self.model(tokens).flatten(0, 1), labels.flatten())
            state["value"] = loss.item()
            return loss

        def configure_optimizers(self) -> Any:
            if state["optimizer"] is None:
                inner = work.optimizer(self.model)
                state["optimizer"] = (inner, torch.optim.lr_scheduler.LambdaLR(inner, work.rate))
            inner, schedule = state["optimizer"]
            return {"optimizer": inner, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    class Clock(pl.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            state.setdefault("first", time.perf_counter())
            state["last"] = time.perf_counter()

    class Batches(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            while True:
                yield work.fetch(state["update"])
                state["update"] += 1

    module = Module()

    def block(count: int) -> float:
        state.pop("first", None)
        loader = torch.utils.data.DataLoader(Batches(), batch_size=None)
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_steps=count + 1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[Clock()],
            gradient_clip_val=1.0,
        )
        trainer.fit(module, loader)
        block.seconds = state["last"] - state["first"]  # type: ignore[attr-defined]  # read by measure()
        return float(state["value"])

    trainer_block: Any = block
    trainer_block.seconds = 0.0
    return block


CONTENDERS: dict[str, Callable[[Work], Block]] = {
    "hand": hand_written,
    "trainer": ours,
    "accelerate": accelerate,
    "fabric": fabric,
    "lightning": lightning,
}


def measure(name: str, contenders: list[str], rounds: int, per_block: int) -> dict[str, Any]:
    """Interleaved blocks of every contender; seconds per update and the losses after the same updates."""
    with tempfile.TemporaryDirectory() as folder:
        work = Work(name, Path(folder), per_block * (rounds + 2))
        blocks = {}
        for contender in contenders:
            with contextlib.redirect_stderr(io.StringIO()):
                blocks[contender] = CONTENDERS[contender](work)
        seconds: dict[str, list[float]] = {contender: [] for contender in contenders}
        losses = {}
        for number in range(rounds + 1):
            order = contenders if number % 2 else contenders[::-1]
            for contender in order:
                start = time.perf_counter()
                losses[contender] = blocks[contender](per_block)
                taken = getattr(blocks[contender], "seconds", 0.0) or time.perf_counter() - start
                if number:  # the first block warms up
                    seconds[contender].append(taken / per_block)
    medians = {contender: statistics.median(values) for contender, values in seconds.items()}
    base = seconds["hand"]
    ratios = {c: statistics.median(v / b for v, b in zip(seconds[c], base, strict=True)) for c in contenders}
    return {"milliseconds": {c: 1000 * m for c, m in medians.items()}, "ratio_to_hand": ratios, "loss": losses}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="comma-separated; hand is always there")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ["PYTHONWARNINGS"] = "ignore"
    torch.set_num_threads(arguments.threads)
    chosen = list(dict.fromkeys(["hand", *arguments.contenders.split(",")]))
    unknown = [name for name in chosen if name not in CONTENDERS]
    if unknown:
        parser.error(f"unknown contenders: {', '.join(unknown)}")
    results = {}
    for name in arguments.models.split(","):
        results[name] = measure(name, chosen, arguments.rounds, 200 if name == "tiny" else 6)
        print(f"{name}: {MODELS[name]}")
        for contender in chosen:
            row = results[name]
            print(
                f"  {contender:<12} {row['milliseconds'][contender]:8.3f} ms per update, "
                f"{row['ratio_to_hand'][contender]:.3f} of hand-written, loss {row['loss'][contender]:.5f}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
