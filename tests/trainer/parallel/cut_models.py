"""Models that are cut, one of them a user's own, and two updates of each on any layout."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.checkpoint.parts import is_part, whole
from trainer.checkpoint.state import load_model, load_optimizer, save_model, save_optimizer
from trainer.mesh import Layout
from trainer.models import build_model
from trainer.models.loss import classification_loss, loss_by_batch, token_loss
from trainer.models.plan import Plan
from trainer.optim import build_optimizer
from trainer.parallel import parallelize
from trainer.parallel.gradients import own_parts
from trainer.precision import Policy
from trainer.schema import Model, Optim, Parallel
from trainer.step import Outcome, Step

CPU = torch.device("cpu")
FP64 = Policy(torch.float64, torch.float64, None, None)
VOCABULARY, SAMPLES, SEQUENCE = 61, 8, 12

# everything at once: an odd vocabulary on tied weights, shared key heads, norms of heads, token pairs
RICH = Model(layers=2, width=32, heads=4, kv_heads=2, hidden=48, tied=True, qk_norm=True, bigram=37)


class OwnBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 24)
        self.down = nn.Linear(24, 16)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.down(functional.gelu(self.up(self.norm(x))))
        return found


class Own(nn.Module):
    """A user's model: biases, a LayerNorm, weights that no word of the plan cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 16)
        self.blocks = nn.ModuleList(OwnBlock() for _ in range(2))
        self.extra = nn.Linear(16, 16)
        self.logits = nn.Linear(16, VOCABULARY)
        self.logits.bias.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        found: Tensor = self.logits(x + torch.tanh(self.extra(x)))
        return found

    def plan(self) -> Plan:
        """Without sequence parallelism: `extra` has no word."""
        words = {"tokens": "vocabulary", "blocks.*.norm": "sequence", "blocks.*.up": "column", "blocks.*.down": "row"}
        return Plan(["blocks.0", "blocks.1"], tensor={**words, "logits": "vocabulary"})


class Cut(NamedTuple):
    """A model and its layout."""

    model: str
    degrees: dict[str, int]
    settings: dict[str, Any]


class Numbers(NamedTuple):
    """Of two updates; `kept`: bytes of weights on this rank."""

    losses: list[float]
    norms: list[float]
    weights: dict[str, Tensor]
    kept: int


def build(name: str) -> tuple[nn.Module, Any]:
    """Model and loss."""
    torch.manual_seed(3)
    if name == "rich":
        return build_model(RICH, vocabulary=VOCABULARY).double(), token_loss
    if name == "mlp":
        return build_model(Model(kind="mlp", inputs=6, width=8, layers=2, classes=5), vocabulary=0).double(), (
            classification_loss
        )
    return Own().double(), loss_by_batch


def batch(name: str, update: int, rows: slice) -> dict[str, Tensor]:
    """Ragged samples, for the rich model of several documents each."""
    generator = torch.Generator().manual_seed(update)
    if name == "mlp":
        inputs = torch.randn(SAMPLES, 6, generator=generator, dtype=torch.float64)
        return {"inputs": inputs[rows], "labels": torch.randint(5, (SAMPLES,), generator=generator)[rows]}
    ids = torch.randint(VOCABULARY, (SAMPLES, SEQUENCE + 1), generator=generator)
    labels = ids[:, 1:].clone()
    for row in range(SAMPLES):
        labels[row, row * 5 % (SEQUENCE + 1) :] = -100
    found = {"tokens": ids[rows, :-1], "labels": labels[rows]}
    if name == "rich":
        found["documents"] = (torch.arange(SEQUENCE) // 5).expand(SAMPLES, -1)[rows]
    return found


class Training:
    """A model on its way, as one rank has it. `found`: a checkpoint that it goes on from."""

    def __init__(self, case: Cut, rank: int, found: Path | None = None) -> None:
        self.case = case
        self.layout = Layout(**case.degrees)
        self.index = self.layout.data_index(rank)
        self.model, loss = build(case.model)
        if found:
            load_model(found, self.model)
        cut = parallelize(self.model, loss, self.layout, Parallel(**case.settings), CPU)
        optim = Optim(name="adamw", lr=0.01, weight_decay=0.1, clip=0.3)
        self.optimizers = build_optimizer(self.model, optim, CPU)
        if found:
            load_optimizer(found, self.model, self.optimizers.optimizers)
        self.step = Step(cut, self.optimizers, FP64, CPU, clip=optim.clip)

    def update(self, number: int) -> Outcome:
        """One, of two micro-batches."""
        size = SAMPLES // self.layout.data_ranks // 2
        rows = [slice(size * part, size * (part + 1)) for part in (self.index * 2, self.index * 2 + 1)]
        batches = [(batch(self.case.model, number, each), size) for each in rows]
        return self.step(batches, 50.0, 1.0, False)

    def weights(self) -> dict[str, Tensor]:
        """Whole."""
        return {name: all_of(value) for name, value in self.model.state_dict().items()}

    def save(self, folder: Path, write: bool) -> None:
        """A checkpoint."""
        save_model(folder, self.model, write)
        save_optimizer(folder, self.model, self.optimizers.optimizers, write)


def updates(rank: int, count: int, case: Cut) -> Numbers:
    """Two of them."""
    training = Training(case, rank)
    outcomes = [training.update(number) for number in range(2)]
    kept = sum(own.nbytes for own in own_parts(list(training.model.parameters())))
    losses, norms = [each.loss for each in outcomes], [each.grad_norm for each in outcomes]
    return Numbers(losses, norms, training.weights(), kept)


def all_of(value: Any) -> Tensor:
    """Whole, on every rank."""
    found: Tensor = whole(value) if is_part(value) else value
    return found.detach().clone()
