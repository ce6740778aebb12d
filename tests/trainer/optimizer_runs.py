"""Five updates of a small GPT with every optimizer on one layout, stopped and resumed between; run by `on_ranks`."""

from pathlib import Path
from typing import Any

import torch

from tools import layouts
from trainer.checkpoint import state as saved
from trainer.models import MODELS
from trainer.models.loss import token_loss
from trainer.optim import Optimizers, build_optimizer
from trainer.parallel import parallelize
from trainer.precision import Policy
from trainer.schema import Optim, Parallel
from trainer.step import Step

CASES = {
    "one": layouts.Case(1, "ddp", 0, 4),
    "ddp": layouts.Case(2, "ddp", 0, 4),
    "optimizer": layouts.Case(2, "optimizer", 0, 4),
    "full": layouts.Case(2, "full", 0, 4),
}


class Run:
    """A model that is trained."""

    def __init__(self, name: str, optim: Optim, folder: Path | None) -> None:
        self.case = CASES[name]
        torch.manual_seed(7 if folder is None else 8)
        self.model = MODELS["gpt"](layouts.MODEL, layouts.VOCABULARY)
        if folder is not None:
            saved.load_model(folder, self.model)
        settings = Parallel(strategy=self.case.strategy)
        cut = parallelize(self.model, token_loss, self.case.layout(), settings, layouts.CPU)
        self.optimizers: Optimizers = build_optimizer(self.model, optim, layouts.CPU, cut.spread)
        if folder is not None:
            saved.load_optimizer(folder, self.model, self.optimizers.optimizers)
        policy = Policy(torch.float32, torch.float32, None, None)
        self.step = Step(cut, self.optimizers, policy, layouts.CPU, clip=optim.clip)

    def train(self, rank: int, updates: range) -> None:
        """The rate falls, so that one that is not set anew shows."""
        for update in updates:
            parts = layouts.parts(rank, self.case.ranks, self.case.micro)
            batches = [(layouts.batch(update, part), self.case.micro) for part in parts]
            self.step(batches, float(layouts.SAMPLES * layouts.SEQUENCE), 1.0 / (update + 1), False)

    def save(self, rank: int, folder: Path) -> None:
        """As `Checkpoints.save` does."""
        if rank == 0:
            folder.mkdir()
        saved.save_model(folder, self.model, write=rank == 0)
        saved.save_optimizer(folder, self.model, self.optimizers.optimizers, write=rank == 0)
        if self.case.ranks > 1:
            torch.distributed.barrier()


def stopped_and_straight(rank: int, count: int, name: str, optim: Optim, folder: Path) -> list[str]:
    """Digests of the weights after 5 updates, and after 2 and 3 with a checkpoint between, which `folder/two` holds."""
    straight = Run(name, optim, None)
    straight.train(rank, range(2))
    straight.save(rank, folder / "two")
    straight.train(rank, range(2, 5))
    resumed = Run(name, optim, folder / "two")
    resumed.save(rank, folder / "again")
    resumed.train(rank, range(2, 5))
    return [saved.weights_digest(each.model) for each in (straight, resumed)]


def gone_on(rank: int, count: int, name: str, optim: Optim, folder: Path) -> dict[str, Any]:
    """Whole weights after updates 3 to 5, from the checkpoint in `folder`."""
    run = Run(name, optim, folder)
    run.train(rank, range(2, 5))
    return {key: layouts.whole(value) for key, value in run.model.state_dict().items()}


def numbers_kept(rank: int, count: int, name: str, optim: Optim) -> int:
    """How many numbers of optimizer state this rank keeps after an update."""
    from trainer.checkpoint.spread import own_part

    run = Run(name, optim, None)
    run.train(rank, range(1))
    return sum(
        (value.to_local() if hasattr(value, "to_local") else value).numel()
        for optimizer in run.optimizers.optimizers
        for state in own_part(optimizer).state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.ndim
    )
