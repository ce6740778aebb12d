"""Memory by torch's tracker: one rank's updates on tensors without content, among ranks that are not there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._pytree import tree_map_only

from trainer.backward import LossModule
from trainer.errors import UserError
from trainer.estimate.job import device_of
from trainer.formats import choose_compute
from trainer.mesh import BatchPlan, Layout
from trainer.models import build_model, choose_loss
from trainer.models.plan import blocks_of
from trainer.optim import build_optimizer
from trainer.parallel.meshes import device_mesh, part
from trainer.precision import Policy, make_policy
from trainer.schema import Config
from trainer.user_code import describe

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

CPU = torch.device("cpu")


def measure(config: Config, layout: Layout, plan: BatchPlan, vocabulary: int) -> dict[str, int]:
    """Bytes of rank 0 at the peak of its second update: by torch's kinds, and "total"; "numbers of weights" too.

    Two forwards stand for more of them. Nothing is computed and no memory is used; gradients that DDP keeps in buckets
    are added by formula. Raises UserError where the model cannot be run so.
    """
    sharded = config.parallel.strategy in ("full", "gradients") and layout.shard > 1
    if layout.pipeline * layout.tensor * layout.context > 1:
        raise UserError(
            "--measure supports data parallelism only", "Remove --measure, or set the other degrees to 1.", 2
        )
    device = device_of(config)
    policy = make_policy(config.precision, choose_compute(config.precision, device)[0], torch.device(device))
    samples, vocabulary = sample_batch(config, plan.micro, vocabulary)
    forwards = min(2, plan.accumulation)
    with _ranks(layout.world_size if sharded else 1):
        mesh = part(device_mesh(layout, CPU), "replicate", "shard") if sharded else None
        return _measured(config, policy, mesh, samples, forwards, vocabulary, copies=layout.averaged > 1)


def _measured(
    config: Config,
    policy: Policy,
    mesh: "DeviceMesh | None",
    samples: Any,
    forwards: int,
    vocabulary: int,
    *,
    copies: bool,
) -> dict[str, int]:
    tracker = MemTracker()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = _built(config, vocabulary, policy.weights)
        tracker.track_external(model)
        weights = sum(parameter.numel() for parameter in model.parameters())
        size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
        try:
            with tracker:
                _updates(config, mesh, model, policy, samples, forwards, tracker)
        except RuntimeError as error:  # what torch raises where values are asked for
            raise UserError(
                f"the model cannot run on tensors without data: {describe(error)}",
                "Remove --measure and watch the memory of a short run: its forward reads values of tensors.",
            ) from error
    peak = tracker.get_tracker_snapshot("peak")[CPU]
    found = {str(getattr(kind, "value", kind)).lower(): amount for kind, amount in peak.items()}
    if copies and mesh is None:
        buckets = size * forwards - (found["gradient"] if forwards == 1 else size)
        found["gradient"] += buckets
        found["total"] += buckets
    return {"numbers of weights": weights, **found}


def _built(config: Config, vocabulary: int, dtype: torch.dtype) -> nn.Module:
    """The model in `dtype` from the start: tensors without content can't be converted in place."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return build_model(config.model, vocabulary=vocabulary)
    finally:
        torch.set_default_dtype(before)


def sample_batch(config: Config, micro: int, vocabulary: int) -> tuple[Any, int]:
    """`micro` samples as the run's loss takes them, and the vocabulary (or classes): of the user's own data, else
    tokens without meaning and `vocabulary`."""
    if config.data.dataset or config.data.images:
        from trainer.data.datasets import open_data

        data = open_data(config, Path(config.run.folder))
        return data.train.fetch([index % len(data.train) for index in range(micro)], 0), data.vocabulary
    tokens = torch.zeros(micro, config.data.sequence + 1, dtype=torch.int64)
    batch = {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}
    documents = {"documents": batch["tokens"].clone()} if config.data.mask_documents else {}
    return batch | documents, vocabulary


def _updates(
    config: Config,
    mesh: "DeviceMesh | None",
    model: nn.Module,
    policy: Policy,
    samples: Any,
    forwards: int,
    tracker: MemTracker,
) -> None:
    """Two updates, of which the second one's peak is kept: then there is optimizer state from the beginning."""
    if policy.attention is not None and hasattr(model, "attention_dtype"):
        model.attention_dtype = policy.attention  # type: ignore[assignment]  # a property
    loss = choose_loss(config.model, model)
    module = LossModule(model, loss)
    if config.memory.recompute not in ("none", "budget"):
        from trainer.parallel.recompute import apply_recompute

        apply_recompute(blocks_of(model), config.memory.recompute, config.memory.every)
    if mesh is not None:
        from trainer.parallel.fsdp import apply_fsdp

        apply_fsdp(model, mesh, blocks_of(model), reshard=config.parallel.strategy == "full")
    optimizers = build_optimizer(model, config.optim, CPU)
    autocast = policy.autocast("cpu")
    for _ in range(2):
        tracker._peak_mem.clear()
        batches = [_fake(samples) for _ in range(forwards)]
        for index, batch in enumerate(batches):
            tracker.reset_mod_stats()
            with _held_back(model, hold=mesh is not None and index < forwards - 1):
                with autocast:
                    total, _ = module(batch)
                total.backward()
                del total
        optimizers.step()
        optimizers.zero_grad()


@contextmanager
def _held_back(model: nn.Module, *, hold: bool) -> Iterator[None]:
    if not hold:
        yield
        return
    from trainer.parallel.fsdp import unsynchronized

    with unsynchronized(model):
        yield


def _fake(samples: Any) -> Any:
    """The same shapes, made within the mode that is on."""
    return tree_map_only(Tensor, lambda each: torch.empty_like(each, device=CPU), samples)


@contextmanager
def _ranks(count: int) -> Iterator[None]:
    """A process group of `count` ranks, of which this is the only one; its collectives do nothing."""
    if count == 1 or torch.distributed.is_initialized():
        yield
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()
