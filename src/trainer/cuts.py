"""What of a built-in model tensor and context ranks must divide: arithmetic, no torch."""

from trainer.errors import UserError
from trainer.models.check import hidden_width, key_value_heads
from trainer.schema import Config


def check_cuts(config: Config) -> None:
    """Raises UserError (status 2) for a model or data that `parallel.tensor` or `parallel.context` ranks cannot share.

    Models of the user's own are looked at when they are cut.
    """
    parallel, model = config.parallel, config.model
    if parallel.tensor > 1 and not model.build:
        _check_sizes(config)
    if parallel.context > 1:
        _check_context(config)
    sequence = parallel.sequence_parallel and parallel.tensor > 1
    if sequence and model.kind == "mlp" and not model.build:
        raise UserError(
            "parallel.sequence_parallel shards the tokens of a sequence, and an mlp has no sequence",
            "Remove parallel.sequence_parallel.",
            2,
        )
    parts = parallel.context * (parallel.tensor if sequence else 1)
    if parts > 1 and not config.data.dataset and config.data.sequence % parts:
        named = f"context {parallel.context} x tensor {parallel.tensor}" if sequence else f"context {parallel.context}"
        near = config.data.sequence // parts * parts
        raise UserError(
            f"data.sequence = {config.data.sequence} is not a multiple of {parts} ({named})",
            f"Set data.sequence to {near or parts}, or change the degrees in [parallel].",
            2,
        )


def _check_sizes(config: Config) -> None:
    model, ranks = config.model, config.parallel.tensor
    sizes = {"model.width": model.width}
    if model.kind == "gpt":
        sizes = {
            "model.heads": model.heads,
            "model.kv_heads": key_value_heads(model),
            "model.hidden": hidden_width(model),
        }
    for name, size in sizes.items():
        if size % ranks:
            raise UserError(
                f"{name} = {size} is not a multiple of parallel.tensor = {ranks}",
                f"Set parallel.tensor to {max(t for t in range(1, ranks) if all(s % t == 0 for s in sizes.values()))}, "
                f"or {name} to a multiple of {ranks}.",
                2,
            )


def _check_context(config: Config) -> None:
    model = config.model
    if not model.build and model.kind != "gpt":
        raise UserError(
            f"parallel.context shards sequences, and model.kind {model.kind} has none", "Remove parallel.context.", 2
        )
    if model.loss:
        raise UserError(
            "parallel.context leaves a shard of the logits on each rank, which a model.loss of your own does not know",
            "Remove parallel.context, or use the built-in loss.",
            2,
        )
