"""A few updates of a run, and what they gave: losses, norms, gradients, weights. Nothing is saved."""

import hashlib
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from trainer import session
from trainer.checkpoint.names import plain_names
from trainer.checkpoint.parts import gathered
from trainer.checkpoint.stages import joined, keeps
from trainer.data.datasets import Datasets
from trainer.errors import UserError
from trainer.mesh import BatchPlan, Layout
from trainer.models import choose_loss
from trainer.moving import moved
from trainer.optim import Optimizers, build_optimizer
from trainer.precision import make_policy
from trainer.schema import Config
from trainer.step import Step

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Numbers(NamedTuple):
    """Of some updates. `gradients`: those applied in the first update, by the model's own names, and `weights`: after
    the last, both whole and on the host, on rank 0 only. `batches`: a digest of each micro-batch with real samples in
    it, () for one without, by update."""

    losses: list[float]
    norms: list[float]
    gradients: dict[str, Tensor]
    weights: dict[str, Tensor]
    batches: list[list[str]]


def run_updates(
    config: Config, layout: Layout, plan: BatchPlan, data: Datasets, device: torch.device, *, rank: int, updates: int
) -> Numbers:
    """Trains the first `updates` of the run as rank `rank` of `layout`. Collective where there is more than one."""
    policy = make_policy(config.precision, config.precision.compute, device, config.run.seed)
    model = session.make_model(config, data.vocabulary, policy, device)
    plan = session.plan_for(config, model, plan)
    silence(model)
    cut = session.cut_model(config, model, choose_loss(config.model, model), layout, device, policy)
    optimizers = build_optimizer(model, config.optim, device, cut.spread)
    policy.keep_small_steps(optimizers, model)
    session.seed_everything(config.run.seed, rank)
    gradients: dict[str, Tensor] = {}
    _record(optimizers, model, gradients, rank == 0, cut.stages)
    step = Step(cut, optimizers, policy, device, clip=config.optim.clip)
    loader = session.make_loader(config, data, plan, layout.data_index(rank), device)
    numbers = Numbers([], [], gradients, {}, [])
    for update in islice(loader.updates(0), updates):
        numbers.batches.append([digest(batch) if real else "" for batch, real in update.micro_batches])
        micro_batches = [(moved(batch, device, policy.weights), real) for batch, real in update.micro_batches]
        divisor = float(max(1, update.samples * data.train.tokens_per_sample))
        outcome = step(micro_batches, divisor, 1.0, False)
        if cut.settle is not None:
            cut.settle()
        numbers.losses.append(outcome.loss)
        numbers.norms.append(outcome.grad_norm)
    loader.close()
    if not numbers.losses:
        raise UserError("the data gives no update to compare", "Set a smaller batch.size, or use more data.", 2)
    numbers.weights.update(_whole(model, model.state_dict(), rank == 0, cut.stages))
    return numbers


def sample_digests(
    config: Config, plan: BatchPlan, data: Datasets, device: torch.device, updates: int
) -> list[list[str]]:
    """Digests of the micro-batches that one rank gets under `plan`, by update; nothing is trained."""
    loader = session.make_loader(config, data, plan, 0, device)
    found = [
        [digest(batch) if real else "" for batch, real in update.micro_batches]
        for update in islice(loader.updates(0), updates)
    ]
    loader.close()
    return found


def silence(model: nn.Module) -> list[str]:
    """Turns dropout off; the names of the modules whose it was."""
    found = []
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p:
            module.p = 0.0
            found.append(name)
    return found


def digest(batch: Any) -> str:
    """Of all tensors in it: equal for equal samples."""
    found = hashlib.sha256()
    for leaf in tree_leaves(batch):
        if isinstance(leaf, Tensor):
            flat = leaf.detach().cpu().contiguous().reshape(-1)
            found.update(f"{leaf.dtype} {tuple(leaf.shape)}".encode())
            found.update(flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def _record(
    optimizers: Optimizers, model: nn.Module, into: dict[str, Tensor], keep: bool, stages: "ProcessGroup | None"
) -> None:
    """Copies the gradients of the first update, as they are when they are applied."""
    step = optimizers.step
    done = False

    def recorded() -> None:
        nonlocal done
        if not done:
            done = True
            found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
            into.update(_whole(model, found, keep, stages))
        step()

    optimizers.step = recorded  # type: ignore[method-assign]  # of this one object


def _whole(model: nn.Module, state: Mapping[str, Any], keep: bool, stages: "ProcessGroup | None") -> dict[str, Tensor]:
    names = plain_names(model, model.state_dict())
    kept = keeps(keep, stages)
    found = gathered({names.get(name, name): value for name, value in state.items()}, kept)
    if kept:
        found = joined(found, stages)
    return {name: value.detach().cpu().clone() for name, value in found.items() if isinstance(value, Tensor)}
