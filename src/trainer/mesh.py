"""How many ranks do what, as arithmetic without torch: the layout, batch sizes, accumulation, updates."""

from trainer.config import global_batch
from trainer.errors import UserError
from trainer.schema import Config


class Layout:
    """`replicate` copies of the model, each kept by `shard` ranks between them; every rank sees samples of its own.

    The ranks of one copy are neighbours: rank = copy * shard + part.
    """

    def __init__(self, replicate: int, shard: int) -> None:
        self.replicate = replicate
        self.shard = shard

    @property
    def data_ranks(self) -> int:
        """Ranks that see different samples."""
        return self.replicate * self.shard

    def shape(self) -> dict[str, int]:
        """The mesh: name -> size of each of its dimensions, the outermost first."""
        return {"replicate": self.replicate, "shard": self.shard}


def plan_layout(config: Config, world_size: int) -> Layout:
    """Who keeps what. Refused where the copies do not come out even, or nothing is there to be sharded."""
    parallel = config.parallel
    if parallel.strategy == "ddp":
        if parallel.shard > 1:
            raise UserError(
                f"parallel.shard is {parallel.shard}, and strategy ddp shards nothing",
                "--parallel.strategy full, or leave parallel.shard out",
                2,
            )
        return Layout(world_size, 1)
    shard = parallel.shard or world_size
    if world_size % shard:
        near = [size for size in range(1, world_size + 1) if world_size % size == 0]
        raise UserError(
            f"{world_size} ranks are no whole number of copies of a model that {shard} ranks keep between them",
            f"--parallel.shard {min(near, key=lambda size: abs(size - shard))}, or another number of ranks",
            2,
        )
    return Layout(world_size // shard, shard)


class BatchPlan:
    """`size`: samples per update over all ranks; `micro`: samples per forward on one rank; `accumulation`: forwards per
    update; `data_ranks`: ranks that see different samples."""

    def __init__(self, size: int, micro: int, accumulation: int, data_ranks: int) -> None:
        self.size = size
        self.micro = micro
        self.accumulation = accumulation
        self.data_ranks = data_ranks


def plan_batch(config: Config, world_size: int) -> BatchPlan:
    """Accumulation follows from the global batch. Refused where the ranks do not divide it: a rank with fewer samples
    than the others waits for them at every update."""
    size = global_batch(config)
    if size % world_size:
        lower = size // world_size * world_size
        choice = f"{lower} or {lower + world_size}" if lower else str(world_size)
        key = "batch.tokens" if config.batch.tokens else "batch.size"
        if config.batch.tokens:
            choice = " or ".join(str(int(part) * config.data.sequence) for part in choice.split(" or "))
        raise UserError(
            f"a global batch of {size} samples does not divide over {world_size} ranks",
            f"--{key} {choice}, or another number of ranks",
            2,
        )
    share = size // world_size
    micro = min(config.batch.micro or share, share)
    if share % micro:
        divisors = [m for m in range(1, share + 1) if share % m == 0]
        near = min(divisors, key=lambda m: abs(m - micro))
        raise UserError(
            f"batch.micro {micro} does not divide a rank's share of {share} samples ({size} over {world_size} ranks)",
            f"--batch.micro {near}",
            2,
        )
    return BatchPlan(size, micro, share // micro, world_size)


def total_updates(config: Config, updates_per_epoch: int) -> int:
    """Updates of the whole run: `run.steps`, else as many as `run.epochs` give."""
    return config.run.steps or updates_per_epoch * config.run.epochs
