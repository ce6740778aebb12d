"""What of [memory] and model.compile does not go together: arithmetic of settings, no torch."""

from trainer.errors import UserError
from trainer.mesh import Layout
from trainer.models.check import count_parameters
from trainer.schema import Config

LARGE = 100_000_000  # parameters that are worth half a second of start


def check_memory(config: Config, layout: Layout) -> None:
    """UserError (status 2) for settings that contradict each other or the layout."""
    memory, parallel, device = config.memory, config.parallel, config.run.device
    sharded = parallel.strategy in ("gradients", "full")
    if memory.recompute == "budget":
        if config.model.compile == "none":
            raise UserError(
                "memory.recompute budget needs model.compile, and nothing is compiled",
                "Set model.compile to blocks, or memory.recompute to selective.",
                2,
            )
        if memory.budget > 1:
            raise UserError(f"memory.budget is {memory.budget:g}, not a fraction", "Set memory.budget from 0 to 1.", 2)
    check_recompute(memory.recompute, layout.pipeline, parallel.schedule)
    if memory.offload == "parameters" and not sharded:
        raise UserError(
            f"memory.offload parameters needs FSDP2, but parallel.strategy is {parallel.strategy}",
            "Set parallel.strategy to full, or remove memory.offload.",
            2,
        )
    if memory.offload == "parameters" and device == "cpu":
        raise UserError(
            "memory.offload parameters has no effect with run.device cpu: the weights are in host memory already",
            "Remove memory.offload.",
            2,
        )
    if parallel.prefetch and parallel.strategy != "full":
        raise UserError(
            f"parallel.prefetch has no effect with parallel.strategy {parallel.strategy}, which gathers no blocks",
            "Set parallel.strategy to full, or remove parallel.prefetch.",
            2,
        )
    _check_compiled(config)
    _check_meta(config, layout)


def check_recompute(recompute: str, stages: int, schedule: str) -> None:
    """UserError (status 2) for what a pipeline's schedule cannot do: torch gives up what was kept of a block when its
    first backward takes it."""
    if recompute != "selective" or stages == 1:
        return
    from trainer.schedules import SPLIT_BACKWARD

    if schedule in SPLIT_BACKWARD:
        raise UserError(
            f"memory.recompute selective supports one backward, but parallel.schedule {schedule} runs two",
            "Set memory.recompute to full, or parallel.schedule to interleaved.",
            2,
        )


def _check_compiled(config: Config) -> None:
    parallel = config.parallel
    if config.model.compile == "none":
        return
    if parallel.tensor > 1 or parallel.context > 1:
        raise UserError(
            "model.compile does not support tensor or context parallelism: blocks communicate inside",
            "Remove model.compile, or set parallel.tensor and parallel.context to 1.",
            2,
        )


def _check_meta(config: Config, layout: Layout) -> None:
    if config.memory.meta != "on":
        return
    if not _in_parts(config, layout):
        raise UserError(
            "memory.meta on has no effect: every rank keeps the whole model",
            "Remove memory.meta, or set parallel.strategy to full.",
            2,
        )
    for name, value in _need_values(config):
        raise UserError(f"memory.meta on does not support {name} {value}", "Set memory.meta to off.", 2)


def _need_values(config: Config) -> list[tuple[str, str]]:
    """Settings of what looks at a model's tensors before it is cut."""
    found = [("precision.compute", config.precision.compute), ("memory.offload", config.memory.offload)]
    if config.parallel.pipeline > 1 and not config.parallel.cut:
        found.append(("parallel.balance", config.parallel.balance))
    return [(name, value) for name, value in found if value in ("fp8", "parameters", "measured")]


def starts_empty(config: Config, layout: Layout, vocabulary: int) -> bool:
    """Whether each rank makes its own part of the model only, of what `memory.meta` leaves open the large ones."""
    if config.memory.meta != "auto" or not _in_parts(config, layout):
        return config.memory.meta == "on"
    if config.model.build or _need_values(config):
        return False
    return config.model.kind == "gpt" and count_parameters(config.model, vocabulary) >= LARGE


def _in_parts(config: Config, layout: Layout) -> bool:
    return layout.pipeline > 1 or layout.tensor > 1 or (layout.shard > 1 and config.parallel.strategy != "ddp")
