"""How many ranks do what, as arithmetic without torch: the layout, batch sizes, accumulation, updates."""

from trainer.config import global_batch
from trainer.cuts import check_cuts
from trainer.errors import UserError
from trainer.schema import Config

AXES = ("pipeline", "replicate", "shard", "context", "tensor")


class Layout:
    """The degrees of a run, whose product is the world size: `pipeline` stages of the model; `replicate` copies of it,
    each kept by `shard` ranks between them, which see samples of their own; `context` parts of every sequence; `tensor`
    parts of every matrix.

    Ranks are counted with the last as the innermost: those of one tensor group are neighbours.
    """

    def __init__(
        self, *, pipeline: int = 1, replicate: int = 1, shard: int = 1, context: int = 1, tensor: int = 1
    ) -> None:
        self.pipeline = pipeline
        self.replicate = replicate
        self.shard = shard
        self.context = context
        self.tensor = tensor

    @property
    def world_size(self) -> int:
        """All ranks."""
        return self.holders * self.pipeline

    @property
    def data_ranks(self) -> int:
        """Ranks that see different samples."""
        return self.replicate * self.shard

    @property
    def averaged(self) -> int:
        """Ranks over whose gradients a backward averages: those that see other samples, or another part of them."""
        return self.data_ranks * self.context

    @property
    def holders(self) -> int:
        """Ranks that hold one stage of the model, or parts of it."""
        return self.averaged * self.tensor

    def shape(self) -> dict[str, int]:
        """The mesh: name -> size of each of its dimensions, the outermost first."""
        return {name: getattr(self, name) for name in AXES}

    def index(self, rank: int) -> dict[str, int]:
        """Where `rank` is along each dimension."""
        found = {}
        for name, size in reversed(self.shape().items()):
            rank, found[name] = divmod(rank, size)
        return found

    def data_index(self, rank: int) -> int:
        """Which of the `data_ranks` this one is: those of the same number see the same samples."""
        at = self.index(rank)
        return at["replicate"] * self.shard + at["shard"]


def plan_layout(config: Config, world_size: int) -> Layout:
    """Who keeps what. Refused where the copies do not come out even, or nothing is there to be sharded."""
    parallel = config.parallel
    if parallel.pipeline > 1:
        _check_stages(config)
    check_cuts(config)
    cut = parallel.pipeline * parallel.context * parallel.tensor
    if world_size % cut:
        named = ("pipeline", "context", "tensor")
        product = " x ".join(f"{name} {getattr(parallel, name)}" for name in named if getattr(parallel, name) > 1)
        raise UserError(
            f"{world_size} ranks is not a multiple of {product}",
            f"Start a multiple of {cut} ranks, or lower the degrees in [parallel].",
            2,
        )
    rest = world_size // cut
    degrees = {"pipeline": parallel.pipeline, "context": parallel.context, "tensor": parallel.tensor}
    if parallel.strategy in ("ddp", "optimizer"):
        if parallel.shard > 1:
            raise UserError(
                f"parallel.shard is {parallel.shard}, but parallel.strategy {parallel.strategy} shards no weights",
                "Set parallel.strategy to full, or remove parallel.shard.",
                2,
            )
        if parallel.strategy == "optimizer" and parallel.tensor > 1:
            raise UserError(
                "parallel.strategy optimizer assigns whole weights to ranks, but parallel.tensor shards them",
                "Set parallel.strategy to gradients, or remove parallel.tensor.",
                2,
            )
        return Layout(replicate=rest, **degrees)
    shard = parallel.shard or rest
    if rest % shard:
        near = [size for size in range(1, rest + 1) if rest % size == 0]
        raise UserError(
            f"{rest} ranks is not a multiple of parallel.shard = {shard}",
            f"Set parallel.shard to {min(near, key=lambda size: abs(size - shard))}, or start another number of ranks.",
            2,
        )
    return Layout(replicate=rest // shard, shard=shard, **degrees)


def _check_stages(config: Config) -> None:
    from trainer.schedules import SPLIT_BACKWARD, check_cut, stages_per_rank

    parallel = config.parallel
    stages = parallel.pipeline * stages_per_rank(parallel.schedule, parallel.virtual)
    if parallel.strategy == "full" and parallel.schedule in SPLIT_BACKWARD:
        raise UserError(
            f"parallel.strategy full frees a block's weights after each use, but schedule {parallel.schedule} needs "
            "them again for a second backward, and torch computes wrong gradients then",
            "Set parallel.strategy to gradients, or parallel.schedule to interleaved.",
            2,
        )
    if config.model.compile != "none" and parallel.schedule in SPLIT_BACKWARD:
        raise UserError(
            f"a compiled block has one backward, but schedule {parallel.schedule} needs two",
            "Remove model.compile, or set parallel.schedule to interleaved.",
            2,
        )
    if config.model.build:
        return
    if config.model.kind == "mlp" and parallel.tensor > 1:
        raise UserError(
            "parallel.pipeline and parallel.tensor cannot be combined for model.kind mlp",
            "Remove parallel.tensor or parallel.pipeline.",
            2,
        )
    check_cut(parallel.cut, config.model.layers, stages)


class BatchPlan:
    """`size`: samples per update over all ranks; `micro`: samples per forward on one rank; `accumulation`: forwards per
    update; `data_ranks`: ranks that see different samples; `norm_group`: samples over which batch norms take their
    statistics, 0 where the model has none, or may be yet to be built."""

    def __init__(self, size: int, micro: int, accumulation: int, data_ranks: int, norm_group: int = 0) -> None:
        self.size = size
        self.micro = micro
        self.accumulation = accumulation
        self.data_ranks = data_ranks
        self.norm_group = norm_group


def plan_batch(config: Config, data_ranks: int, norms: bool | None = None) -> BatchPlan:
    """Accumulation follows from the global batch. Refused where the ranks do not divide it: a rank with fewer samples
    than the others waits for them at every update. `norms`: whether the model has batch norms; None: as far as the
    settings tell."""
    size = global_batch(config)
    if size % data_ranks:
        lower = size // data_ranks * data_ranks
        choice = f"{lower} or {lower + data_ranks}" if lower else str(data_ranks)
        key = "batch.tokens" if config.batch.tokens else "batch.size"
        if config.batch.tokens:
            choice = " or ".join(str(int(part) * config.data.sequence) for part in choice.split(" or "))
        raise UserError(
            f"the global batch of {size} samples is not a multiple of {data_ranks} data-parallel ranks",
            f"Set {key} to {choice}, or start another number of ranks.",
            2,
        )
    share = size // data_ranks
    if norms is None:
        norms = config.model.kind == "resnet" and not config.model.build
    if norms and not config.batch.micro:
        micro = _micro_of_norms(config, size, data_ranks)
    else:
        micro = min(config.batch.micro or _usual_micro(config, share), share)
    if share % micro:
        divisors = [m for m in range(1, share + 1) if share % m == 0]
        near = min(divisors, key=lambda m: abs(m - micro))
        raise UserError(
            f"batch.micro = {micro} does not divide a rank's {share} samples ({size} over {data_ranks} ranks)",
            f"Set batch.micro to {near}.",
            2,
        )
    if config.parallel.pipeline > 1:
        from trainer.schedules import check_micro_batches

        check_micro_batches(config.parallel.schedule, config.parallel.pipeline, share, micro)
    group = micro * (data_ranks if config.parallel.sync_batch_norm else 1)
    return BatchPlan(size, micro, share // micro, data_ranks, group if norms else 0)


def usual_norm_group(size: int) -> int:
    """Samples over which batch norms take their statistics where `batch.micro` is 0: a quarter of an update of `size`
    samples, at least 4 where there are as many, and a divisor of it. It does not depend on the layout."""
    most = max(4, size // 4)
    return max(group for group in range(1, min(most, size) + 1) if size % group == 0)


def _micro_of_norms(config: Config, size: int, data_ranks: int) -> int:
    """Samples of a forward on one rank that give batch norms their usual group; refused where they cannot."""
    share, group = size // data_ranks, usual_norm_group(size)
    together = data_ranks if config.parallel.sync_batch_norm else 1
    if group % together == 0 and share % (group // together) == 0:
        return group // together
    fix = f"Set batch.micro to {share}, which takes them over {share * together} samples."
    if together == 1 and group % data_ranks == 0:
        fix = f"Set parallel.sync_batch_norm to true, which keeps them, or batch.micro to {share}, for {share} samples."
    raise UserError(
        f"batch norms take their statistics over {group} samples by default, whatever the layout, and each of "
        f"{data_ranks} ranks has {share} samples of an update",
        fix,
        2,
    )


def _usual_micro(config: Config, share: int) -> int:
    """Samples of a forward where the run file names none, of a rank's share."""
    if config.parallel.pipeline == 1:
        return share
    from trainer.schedules import usual_micro

    return usual_micro(config.parallel.schedule, config.parallel.pipeline, share)


def total_updates(config: Config, updates_per_epoch: int) -> int:
    """Updates of the whole run: `run.steps`, else as many as `run.epochs` give."""
    return config.run.steps or updates_per_epoch * config.run.epochs
