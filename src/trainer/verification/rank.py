"""One rank of `trainer verify`: what is compared, and the verdict."""

from pathlib import Path
from typing import Any

import torch

from trainer import session
from trainer.data.datasets import Datasets, open_data
from trainer.launch import comm
from trainer.launch.detect import World
from trainer.mesh import BatchPlan, Layout, plan_layout
from trainer.models import choose_loss
from trainer.moving import moved
from trainer.precision import make_policy
from trainer.schema import Config
from trainer.verification.compare import TOLERANCES, compare, odd_batches
from trainer.verification.probe import Findings, probe
from trainer.verification.trial import Numbers, run_updates, sample_digests, silence


def verdict(
    config: Config, world: World, plan: BatchPlan, *, updates: int, tolerance: float, notes: list[str]
) -> dict[str, Any] | None:
    """The comparison as plain values, on rank 0; None on the others. `tolerance` below 0: that of the number format.

    Rank 0 first trains alone while the others wait where the ranks meet. `precision.compute` must be decided.
    """
    folder = Path(config.run.folder)
    place = _prepare(config, folder) if world.rank == 0 else ""
    device = session.set_up(config, world)
    tolerance = TOLERANCES[config.precision.compute] if tolerance < 0 else tolerance
    layout = plan_layout(config, world.world_size)
    one: Numbers | None = None
    findings = Findings()
    findings.notes += notes
    if world.rank == 0:
        data = open_data(config, folder, prepare=False, place=place)
        plan, findings = _probe(config, data, plan, device, tolerance, findings)
        alone = one_rank(plan)
        one = run_updates(config, Layout(), alone, data, device, rank=0, updates=updates)
        if alone.micro != plan.micro:  # the same samples in forwards of another size
            parts = BatchPlan(plan.size, plan.micro, plan.size // plan.micro, 1)
            one = one._replace(batches=sample_digests(config, parts, data, device, updates))
    with session.process_group(config, world, device):
        data = open_data(config, folder, prepare=False, place=comm.broadcast_text(place))
        other = run_updates(config, layout, plan, data, device, rank=world.rank, updates=updates)
        digests = _gathered((world.rank, layout.data_index(world.rank), other.batches), world)
    if one is None:
        return None
    result = compare(one, other, tolerance)
    findings.problems += odd_batches(one, digests, layout.data_ranks)
    return {
        "equal": result["equal"] and not findings.problems,
        "ranks": world.world_size,
        "layout": layout.shape(),
        "strategy": config.parallel.strategy,
        "compute": config.precision.compute,
        "updates": len(one.losses),
        "norm_group": plan.norm_group,
        **{name: value for name, value in result.items() if name != "equal"},
        "problems": findings.problems,
        "notes": findings.notes,
    }


def _prepare(config: Config, folder: Path) -> str:
    """Prepare what the other ranks rely on; return where it lies."""
    if config.data.images:
        from trainer.data import images

        folder.mkdir(parents=True, exist_ok=True)
        images.note(folder, images.find_images(config.data))
    elif not config.data.dataset:
        from trainer.run_data import prepare_files

        return prepare_files(config, folder, None)
    return ""


def _probe(
    config: Config, data: Datasets, plan: BatchPlan, device: torch.device, tolerance: float, findings: Findings
) -> tuple[BatchPlan, Findings]:
    """Look at the first samples with a model of its own, whose buffers may change; the plan that fits the model."""
    policy = make_policy(config.precision, config.precision.compute, device, config.run.seed)
    model = session.make_model(config, data.vocabulary, policy, device)
    plan = session.plan_for(config, model, plan)
    quiet = silence(model)
    samples = min(max(2, plan.micro), len(data.train))
    batch = moved(data.train.fetch(list(range(samples)), 0), device, policy.weights)
    found = probe(model, choose_loss(config.model, model), batch, policy, device, tolerance)
    if quiet:
        found.notes.insert(
            0, f"dropout is off for the comparison: {', '.join(quiet[:3])}" + (" ..." if quiet[3:] else "")
        )
    found.notes[:0] = findings.notes
    return plan, found


def one_rank(plan: BatchPlan) -> BatchPlan:
    """One rank that makes the updates of `plan`: batch norms, synchronized or not, see the same groups of samples."""
    micro = plan.norm_group or plan.micro
    return BatchPlan(plan.size, micro, plan.size // micro, 1, plan.norm_group)


def _gathered(mine: Any, world: World) -> list[Any]:
    """That of every rank, on every rank."""
    if world.world_size == 1:
        return [mine]
    found: list[Any] = [None] * world.world_size
    torch.distributed.all_gather_object(found, mine)
    return found
