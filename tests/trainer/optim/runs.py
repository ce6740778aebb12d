"""Five updates of a small GPT with every optimizer on one layout, stopped and resumed between; run by `on_ranks`."""

from pathlib import Path
from typing import Any

import torch

from tools import layouts
from tools.layouts import Case
from trainer.checkpoint import state as saved
from trainer.models import MODELS
from trainer.models.loss import token_loss
from trainer.optim import Optimizers, build_optimizer
from trainer.parallel import parallelize
from trainer.precision import Policy
from trainer.schema import Model, Optim
from trainer.step import Step

MODEL = Model(kind="gpt", layers=2, width=16, heads=4, tied=True)
CASES = {
    "one": Case(1, "ddp", 0, 16),
    "ddp": Case(2, "ddp", 0, 8),
    "optimizer": Case(2, "optimizer", 0, 8),
    "full": Case(2, "full", 0, 8),
    "hybrid": Case(4, "full", 2, 4),
    "full, tensor": Case(2, "full", 0, 8, tensor=2),
    "optimizer, pipeline": Case(2, "optimizer", 0, 4, pipeline=2),
}


class Run:
    """A model that is trained."""

    def __init__(self, name: str, optim: Optim, folder: Path | None, dtype: torch.dtype = torch.float32) -> None:
        self.case = CASES[name]
        torch.manual_seed(7 if folder is None else 8)
        self.model = MODELS["gpt"](MODEL, layouts.VOCABULARY).to(dtype)
        if folder is not None:
            saved.load_model(folder, self.model, training=True)
        self.layout = self.case.layout()
        self.cut = parallelize(self.model, token_loss, self.layout, self.case.settings(), layouts.CPU)
        self.optimizers: Optimizers = build_optimizer(self.model, optim, layouts.CPU, self.cut.spread)
        if folder is not None:
            saved.load_optimizer(folder, self.model, self.optimizers.optimizers)
            if self.optimizers.average is not None:
                self.optimizers.average.load(saved.saved_parameters(folder, self.model), 2)
        policy = Policy(dtype, dtype, None, None)
        self.step = Step(self.cut, self.optimizers, policy, layouts.CPU, clip=optim.clip)

    def train(self, rank: int, updates: range) -> None:
        """The rate falls, so that one that is not set anew shows."""
        for update in updates:
            parts = layouts.parts(self.layout.data_index(rank), self.case.data, self.case.micro)
            batches = [(layouts.batch(update, part), self.case.micro) for part in parts]
            self.step(batches, float(layouts.SAMPLES * layouts.SEQUENCE), 1.0 / (update + 1), False)

    def save(self, rank: int, folder: Path) -> None:
        """As `Checkpoints.save` does."""
        if rank == 0:
            folder.mkdir()
        with self.optimizers.averaged():
            saved.save_model(folder, self.model, write=rank == 0)
        if self.optimizers.average is not None:
            saved.save_model(folder, self.model, write=rank == 0, file=saved.TRAINED_FILE)
        saved.save_optimizer(folder, self.model, self.optimizers.optimizers, write=rank == 0)
        if self.case.ranks > 1:
            torch.distributed.barrier()

    def digests(self) -> list[str]:
        """Of the weights, and of what is used of them."""
        found = [saved.weights_digest(self.model)]
        with self.optimizers.averaged():
            return [*found, saved.weights_digest(self.model)]

    def loss_in_use(self) -> float:
        """Of one batch, alike on all ranks."""
        self.model.eval()
        with torch.no_grad(), self.optimizers.averaged():
            total, count = self.cut.evaluate(layouts.batch(9, range(layouts.SAMPLES)))
        self.model.train()
        return float(total) / float(count)


def stopped_and_straight(rank: int, count: int, name: str, optim: Optim, folder: Path) -> list[list[str]]:
    """Digests after 5 updates, and after 2 and 3 with a checkpoint between, which `folder/two` holds."""
    straight = Run(name, optim, None)
    straight.train(rank, range(2))
    straight.save(rank, folder / "two")
    straight.train(rank, range(2, 5))
    resumed = Run(name, optim, folder / "two")
    resumed.save(rank, folder / "again")
    resumed.train(rank, range(2, 5))
    return [straight.digests(), resumed.digests()]


def looked_at(rank: int, count: int, name: str, optim: Optim) -> tuple[list[list[str]], float]:
    """Digests after 4 updates, without and with an evaluation after the second, and the loss that this gave."""
    untouched, looked = Run(name, optim, None), Run(name, optim, None)
    untouched.train(rank, range(4))
    looked.train(rank, range(2))
    loss = looked.loss_in_use()
    looked.train(rank, range(2, 4))
    return [untouched.digests(), looked.digests()], loss


def five(rank: int, count: int, name: str, optim: Optim) -> dict[str, torch.Tensor]:
    """Whole weights of this rank after five updates in fp64."""
    run = Run(name, optim, None, torch.float64)
    run.train(rank, range(5))
    return {key: layouts.whole(value) for key, value in run.model.state_dict().items()}


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
