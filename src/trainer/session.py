"""Builds the parts of a run that need torch, in one order, and holds them together until its end."""

import contextlib
import os
import random
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainer import startup
from trainer.agreed import require_same_inputs, settings_facts
from trainer.checkpoint import state as saved
from trainer.checkpoint.run_meta import read_run_meta
from trainer.data.datasets import Datasets
from trainer.data.loader import Loader
from trainer.errors import UserError
from trainer.evaluation import Evaluation
from trainer.formats import choose_compute
from trainer.launch import comm
from trainer.launch.cores import usable_cores
from trainer.launch.detect import World
from trainer.launch.stop import StopRequest
from trainer.loop import Loop, Reporters, State
from trainer.mesh import BatchPlan, Layout, plan_batch, plan_layout, total_updates
from trainer.models import build_model, choose_loss, scored
from trainer.moving import moved
from trainer.optim import Optimizers, build_optimizer
from trainer.parallel import Parallelized, parallelize
from trainer.precision import Policy, make_policy
from trainer.refuse_formats import check_sending
from trainer.resume import Checkpoints
from trainer.schema import Config, Parallel
from trainer.step import Step
from trainer.throughput import Throughput

if TYPE_CHECKING:
    from trainer.backward import Loss
    from trainer.models.recording import Recording
    from trainer.watch import Watch


def set_up(config: Config, world: World) -> torch.device:
    """Picks this rank's device and its number of threads."""
    threads = config.run.threads or int(os.environ.get("OMP_NUM_THREADS") or 0)
    threads = threads or max(1, usable_cores() // world.local_world_size)
    torch.set_num_threads(threads)
    kind = config.run.device
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError(
            "run.device is cuda, and this host has no usable CUDA device", "Set run.device to cpu or auto.", 2
        )
    count = torch.cuda.device_count()
    if world.local_rank >= count:
        raise UserError(
            f"local rank {world.local_rank} has no GPU of its own: this host has {count}",
            f"Start at most {count} ranks on this host.",
            2,
        )
    device = torch.device("cuda", world.local_rank)
    torch.cuda.set_device(device)
    return device


@contextlib.contextmanager
def process_group(
    config: Config, world: World, device: torch.device, origins: Mapping[str, str] | None = None
) -> Iterator[None]:
    """The ranks' common group, for as long as the run lasts. After an error it is left as it is: a tidy end would wait
    for ranks that may never come. UserError where the ranks' settings differ; `origins`: where they came from."""
    facts = settings_facts(config, origins or {}, world.one_machine) if world.world_size > 1 else []
    comm.init(world, device.type, config.parallel.backend, config.fault.timeout, facts)
    yield
    comm.shutdown(True)


def seed_everything(seed: int, rank: int | None = None) -> None:
    """Seeds torch, python and numpy: alike on all ranks for the weights, apart for what comes after them."""
    mixed = seed if rank is None else (seed * 1_000_003 + rank + 1) % 2**63
    torch.manual_seed(mixed)
    random.seed(mixed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(mixed % 2**32)


def make_model(config: Config, vocabulary: int, policy: Policy, device: torch.device) -> nn.Module:
    """The model with the weights that the seed gives, whatever the number of ranks."""
    seed_everything(config.run.seed)
    model = build_model(config.model, vocabulary=vocabulary)
    policy.cast(model, device)
    return model


def start_model(
    config: Config, vocabulary: int, policy: Policy, device: torch.device, layout: Layout
) -> "tuple[nn.Module, Recording | None]":
    """The same model; where `memory.meta` says so it has no values yet, and the recording makes them."""
    from trainer.refuse_memory import starts_empty

    if not starts_empty(config, layout, vocabulary):
        return make_model(config, vocabulary, policy, device), None
    from trainer.models.initialize import record_or_refuse

    seed_everything(config.run.seed)
    model, recording = record_or_refuse(partial(build_model, config.model, vocabulary=vocabulary))
    if not comm.same_text(recording.fingerprint()):
        raise UserError(
            "memory.meta: the ranks build different models; the builder draws from what run.seed does not seed",
            "Set memory.meta to off; then rank 0's weights are sent to all ranks.",
        )
    policy.cast(model, None)
    for tensor in (*model.parameters(), *model.buffers()):
        if not tensor.is_meta:  # made of given values, so they are there already
            tensor.data = tensor.data.to(device)
    return model, recording


def plan_for(config: Config, model: nn.Module, plan: BatchPlan) -> BatchPlan:
    """Return `plan`, or for a model of the user's own that has batch norms the one that gives them their usual groups.

    Raises UserError (status 2) where the layout cannot."""
    from trainer.parallel.batch_norm import batch_norms

    if plan.norm_group or not config.model.build or not batch_norms(model):
        return plan
    found = plan_batch(config, plan.data_ranks, norms=True)
    check_sending(config, found)
    return found


class Training:
    """An assembled run: its loop, what it reports to, and how it ends."""

    def __init__(
        self,
        world: World,
        data: Datasets,
        model: nn.Module,
        loop: Loop,
        checkpoints: Checkpoints,
        *,
        plan: BatchPlan,
        device: str,
        parameters: tuple[int, int],
    ) -> None:
        """`plan`: how a batch is divided; `device`: its name; `parameters`: of the whole model, all and trainable."""
        self.world = world
        self.plan = plan
        self.device = device
        self.parameters, self.trainable = parameters
        self.data = data
        self.model = model
        self.loop = loop
        self.reporters = loop.reporters
        self.state = loop.state
        self.checkpoints = checkpoints

    def close(self) -> None:
        """Flushes and closes what is open."""
        self.loop.loader.close()
        self.reporters.close()


def assemble(
    config: Config,
    world: World,
    device: torch.device,
    data: Datasets,
    plan: BatchPlan,
    found: Path | None,
    stop: StopRequest,
) -> Training:
    """Model, optimizer, checkpoint and loop, in the order in which each needs the one before.

    `found`: the checkpoint to go on from; what rank 0 says counts.
    """
    folder = Path(config.run.folder)
    require_same_inputs(config, world, data, folder)
    checkpoints = Checkpoints(config, world, folder, data.fingerprint)
    text = comm.broadcast_text(str(found) if found else "")
    found = Path(text) if text else None
    meta = read_run_meta(found) if found else None
    if meta:
        checkpoints.check_data(meta)
    compute = _compute(config, device, meta, world)
    policy = make_policy(config.precision, compute, device, config.run.seed)
    startup.mark("precision")
    layout = plan_layout(config, world.world_size)
    model, recording = start_model(config, data.vocabulary, policy, device, layout)
    parameters = _count(model)  # still whole
    planned, plan = plan, plan_for(config, model, plan)
    if world.rank == 0 and plan.micro != planned.micro:
        print(
            f"batch norms: statistics over {plan.norm_group} samples in every layout, so {plan.accumulation} forwards "
            f"of {plan.micro} samples to a rank and update (batch.micro sets it)",
            file=sys.stderr,
        )
    if found and recording is None:
        saved.load_model(found, model, training=True)
    loss = choose_loss(config.model, model)
    scores = scored(loss)
    startup.mark("model")
    watch = make_watch(config, model)
    checkpoints.measured["compute"] = compute
    parallel = config.parallel
    if parallel.balance == "measured" and parallel.pipeline > 1 and not parallel.cut:
        from trainer.balance import balanced, cut_of

        parallel = balanced(
            parallel, model, loss, data, plan.micro, policy, device, first=world.rank == 0, before=cut_of(meta)
        )
        checkpoints.measured["cut"] = parallel.cut
    cut = cut_model(config, model, scores or loss, layout, device, policy, recording, parallel)
    if found and recording is not None:
        saved.load_model(found, model, training=True, stage=layout.pipeline > 1)
    if watch is not None:
        watch.elsewhere = cut.counted_elsewhere
    startup.mark("parallel")
    optimizers = build_optimizer(model, config.optim, device, cut.spread)
    policy.keep_small_steps(optimizers, model)
    startup.mark("optimizer")
    seed_everything(config.run.seed, _drawing_rank(config, layout, world.rank))
    state = State()
    if found and meta:
        checkpoints.load(found, meta, model, optimizers, state, policy)
    loader = make_loader(config, data, plan, layout.data_index(world.rank), device)
    total = total_updates(config, loader.updates_per_epoch)
    step = Step(cut, optimizers, policy, device, clip=config.optim.clip)
    to_device = partial(moved, device=device, weights=policy.weights)
    evaluate = Evaluation(
        cut,
        data,
        policy,
        device,
        world.rank,
        micro=config.eval.micro or plan.micro,
        limit=config.eval.samples,
        to_device=to_device,
        scores=scores,
    )
    throughput = Throughput(config, data.train.tokens_per_sample)
    reporters = _reporters(config, world, folder, state, total, throughput.unit)
    evaluate.on_progress = reporters.progress.evaluating
    loop = Loop(
        config,
        step,
        loader,
        stop,
        reporters,
        state=state,
        total=total,
        throughput=throughput,
        to_device=to_device,
        watch=watch,
        save=lambda: checkpoints.save(model, optimizers, state, policy, cut.stages),
        evaluate=partial(_within, optimizers, evaluate),
        settle=cut.settle,
    )
    return Training(world, data, model, loop, checkpoints, plan=plan, device=_name(device), parameters=parameters)


def _name(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else f"{device.type} ({torch.cuda.get_device_name(device)})"


def _count(model: nn.Module) -> tuple[int, int]:
    """Return the numbers of parameters: all, and those that are trained."""
    sizes = [(each.numel(), each.requires_grad) for each in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained)


def cut_model(
    config: Config,
    model: nn.Module,
    loss: "Loss",
    layout: Layout,
    device: torch.device,
    policy: Policy,
    recording: "Recording | None" = None,
    parallel: Parallel | None = None,
) -> Parallelized:
    """`model` cut over the ranks of `layout`, recomputed and compiled as the run file says; see parallelize.
    `parallel`: how, instead of the run file's."""
    return parallelize(
        model,
        loss,
        layout,
        parallel or config.parallel,
        device,
        gathered=policy.gathered,
        memory=config.memory,
        compiled=config.model.compile == "blocks",
        recording=recording,
    )


def _drawing_rank(config: Config, layout: Layout, rank: int) -> int:
    """Whose random numbers a rank draws: what tensor ranks drop out is the same, but where each has its own tokens."""
    apart = layout.tensor == 1 or config.parallel.sequence_parallel
    return rank if apart else rank - layout.index(rank)["tensor"]


def make_watch(config: Config, model: nn.Module) -> "Watch | None":
    """What looks at gradients where the run file asks for it; `model` is still whole."""
    if not (config.log.norms or config.log.underflow):
        return None
    from trainer.watch import Watch

    return Watch(model, norms=config.log.norms, underflow=config.log.underflow)


def _within(optimizers: Optimizers, evaluate: Evaluation) -> dict[str, float]:
    with optimizers.averaged():
        return evaluate()


def _compute(config: Config, device: torch.device, meta: dict[str, Any] | None, world: World) -> str:
    """The number format: as set; for auto what a resumed run began with, else what rank 0's device has. A rank whose
    own device would choose otherwise says so, and follows."""
    gpu_has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    own, why = choose_compute(config.precision, device.type, gpu_has_bf16)
    auto = config.precision.compute == "auto"
    chosen = comm.broadcast_text(str(meta["compute"]) if auto and meta else own)
    if not auto:
        return chosen
    if world.rank == 0 and chosen == own:
        print(f"precision.compute {chosen}: {why}", file=sys.stderr)
    elif world.rank == 0:
        print(f"precision.compute {chosen}: the run began with it ({why})", file=sys.stderr)
    elif chosen != own:
        emulated = "; bf16 is emulated here, slowly" if chosen == "bf16" else ""
        print(f"rank {world.rank}: precision.compute {chosen}, as on rank 0, but {why}{emulated}", file=sys.stderr)
    return chosen


def make_loader(config: Config, data: Datasets, plan: BatchPlan, data_index: int, device: torch.device) -> Loader:
    """This rank's samples, in the order of the run."""
    return Loader(
        data.train,
        global_batch=plan.size,
        micro_batch=plan.micro,
        dp_rank=data_index,
        dp_size=plan.data_ranks,
        seed=config.run.seed,
        shuffle=config.data.shuffle,
        last=config.batch.last,
        workers=config.data.workers,
        epochs=None if config.run.steps else config.run.epochs,
        pin=device.type == "cuda",
    )


def _reporters(config: Config, world: World, folder: Path, state: State, total: int, unit: str) -> Reporters:
    from trainer.metrics.progress import Progress
    from trainer.metrics.writer import MetricsWriter, NullWriter

    first = world.rank == 0
    metrics = MetricsWriter(folder / "metrics.jsonl", state.step) if first else NullWriter()
    mode = config.log.progress if first else "none"
    progress = Progress(
        total,
        state.step,
        mode=mode,
        every=config.log.every,
        unit=unit,
    )
    events = None
    if config.log.tensorboard and first:
        from trainer.metrics.tensorboard import EventWriter

        events = EventWriter(folder / "tensorboard", state.step)
    return Reporters(metrics, progress, events)
