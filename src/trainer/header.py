"""What a run is, in three lines before its first update: the model, the data, how it is trained. No torch."""

from pathlib import Path

from trainer.metrics.summary import format_count
from trainer.schema import Config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer.data.datasets import Datasets
    from trainer.mesh import BatchPlan, Layout
    from trainer.session import Training


def lines(config: Config, training: "Training", layout: "Layout") -> list[str]:
    """Return the lines.

    model: gpt, 3.21M parameters, bf16 on cpu
    data:  2.31M tokens in 9,025 samples, validation 231k; batch 32 = 8 micro x 2 accumulation x 2 data ranks
    run:   steps 101 to 300 on 2 ranks (ddp) in runs/default
    """
    step, total = training.state.step, training.loop.total
    steps = f"steps {step + 1:,} to {total:,}" if 0 < step < total else f"{total:,} steps"
    compute = training.checkpoints.measured["compute"]
    ranks = layout.world_size
    on = f"{ranks:,} ranks ({cut(config, layout)})" if ranks > 1 else "1 rank"
    return [
        f"model: {_model(config)}, {_parameters(training)}, {compute} on {training.device}",
        f"data:  {_data(training.data)}; batch {_batch(training.plan)}",
        f"run:   {steps} on {on} in {Path(config.run.folder)}",
    ]


def cut(config: Config, layout: "Layout") -> str:
    """Return how the model is cut over the ranks: `ddp`, `pipeline 2 x full 4`."""
    parts = [f"{name} {getattr(layout, name)}" for name in ("pipeline", "context", "tensor")]
    parts = [part for part in parts if not part.endswith(" 1")]
    if layout.data_ranks > 1:
        strategy = config.parallel.strategy
        parts.append(f"{strategy} {layout.data_ranks}" if parts else strategy)
        if layout.replicate > 1 and layout.shard > 1:
            parts[-1] += f", {layout.replicate} copies of {layout.shard} shards"
    return " x ".join(parts)


def _model(config: Config) -> str:
    return config.model.build or config.model.kind


def _parameters(training: "Training") -> str:
    found = f"{format_count(training.parameters)} parameters"
    trainable = training.trainable
    return found if trainable == training.parameters else f"{found} ({format_count(trainable)} trainable)"


def _data(data: "Datasets") -> str:
    validation = "no validation data"
    if data.files is None:
        if data.validation is not None:
            validation = f"validation {len(data.validation):,}"
        return f"{len(data.train):,} samples, {validation}"
    if data.validation is not None:
        validation = f"validation {format_count(data.validation_tokens)}"
    return f"{format_count(data.files.train.tokens)} tokens in {len(data.train):,} samples, {validation}"


def _batch(plan: "BatchPlan") -> str:
    ranks = "data rank" if plan.data_ranks == 1 else "data ranks"
    factors = ((plan.micro, "micro"), (plan.accumulation, "accumulation"), (plan.data_ranks, ranks))
    if plan.micro * plan.accumulation * plan.data_ranks != plan.size:  # the last forward has fewer samples
        return f"{plan.size:,}, at most {plan.micro:,} per forward"
    product = " x ".join(f"{number:,} {name}" for number, name in factors)
    return f"{plan.size:,} = {product}"
