"""The contenders of tools/bench_step.py: each is given Work and returns a function that runs n updates of it."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.step_work import Absent, Block, Work


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
            value = work.mean(loss)
            update += 1
        return value

    return block


def hand_written(work: Work) -> Block:
    """What an engineer writes without any trainer, on torch's own DDP, FSDP2 or pipeline."""
    if work.staged:
        from tools.step_pipeline import piped

        return piped(work)
    model = work.model()
    if work.ranks > 1 and work.strategy == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    elif work.ranks > 1:
        from torch.distributed.fsdp import fully_shard

        for layer in layers(model):
            fully_shard(layer, reshard_after_forward=work.strategy == "full")
        fully_shard(model, reshard_after_forward=False)
    optimizer = work.optimizer(model)
    return loop(
        work,
        model,
        optimizer,
        work.schedule(optimizer),
        Tensor.backward,
        lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
    )


def layers(model: nn.Module) -> list[nn.Module]:
    """What repeats in it."""
    inside: Any = model
    return list(inside.layers if hasattr(model, "layers") else inside.blocks)


def ours(work: Work) -> Block:
    """The trainer's own loop, assembled as `trainer train` does."""
    from trainer import session
    from trainer.data.datasets import open_data
    from trainer.launch.detect import World
    from trainer.launch.stop import StopRequest
    from trainer.mesh import plan_batch

    data = open_data(work.config, work.folder / "run", prepare=False)
    training = session.assemble(
        work.config,
        World(work.rank, work.rank, work.ranks, work.ranks, "env"),
        torch.device("cpu"),
        data,
        plan_batch(work.config, work.parts),
        None,
        StopRequest(),
    )
    updates = iter(training.loop.loader.updates(0))

    def block(count: int) -> float:
        for _ in range(count):
            since = time.perf_counter()
            training.loop.advance(next(updates), since)
        return training.loop.last_loss

    return block


def accelerate(work: Work) -> Block:
    """Hugging Face Accelerate."""
    from accelerate import Accelerator

    if work.ranks > 1 and work.strategy != "ddp":
        raise Absent("DDP only on CPU")
    engine = Accelerator(cpu=True)
    inner = work.optimizer(plain := work.model())
    model, optimizer, schedule = engine.prepare(plain, inner, torch.optim.lr_scheduler.LambdaLR(inner, work.rate))
    # it steps the schedule as often as there are processes, for loaders that it has not divided
    schedule.split_batches = True
    return loop(
        work, model, optimizer, schedule, engine.backward, lambda: engine.clip_grad_norm_(model.parameters(), 1.0)
    )


def fabric(work: Work) -> Block:
    """Lightning Fabric."""
    from lightning.fabric import Fabric

    if work.ranks > 1 and work.strategy != "ddp":
        raise Absent("DDP only on CPU")
    engine = Fabric(accelerator="cpu", devices=work.ranks, strategy="ddp" if work.ranks > 1 else "auto")
    engine.launch()
    inner = work.optimizer(plain := work.model())
    model, optimizer = engine.setup(plain, inner)
    return loop(
        work,
        model,
        optimizer,
        work.schedule(inner),
        engine.backward,
        lambda: engine.clip_gradients(model, optimizer, max_norm=1.0),
    )


def lightning(work: Work) -> Block:
    """Lightning's Trainer; only the time between its first and last batch counts, not the start of `fit`."""
    import lightning as pl

    if work.ranks > 1:
        raise Absent("its Trainer starts ranks of its own")

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
