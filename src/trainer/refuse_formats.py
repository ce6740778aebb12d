"""Number formats and ways of sending gradients that do not go together: arithmetic of settings, no torch."""

from trainer.errors import UserError
from trainer.mesh import BatchPlan
from trainer.schema import Config


def check_formats(config: Config) -> None:
    """UserError (status 2) for formats that contradict each other or the layout."""
    precision, parallel = config.precision, config.parallel
    if precision.weights == "bf16" and parallel.strategy == "optimizer":
        raise UserError(
            "parallel.strategy optimizer needs fp32 weights: it sends them after every update, before they are rounded",
            "Set parallel.strategy to gradients, or precision.weights to fp32.",
            2,
        )
    if precision.gathered == "compute" and parallel.strategy not in ("gradients", "full"):
        raise UserError(
            f"precision.gathered compute has no effect: parallel.strategy {parallel.strategy} gathers no weights",
            "Set parallel.strategy to full, or remove precision.gathered.",
            2,
        )
    if precision.compute == "fp8":
        _check_fp8(config)


def _check_fp8(config: Config) -> None:
    if config.run.device == "cpu":
        raise UserError(
            "precision.compute fp8 needs a GPU with 8-bit products (compute capability 8.9 or newer), but "
            "run.device is cpu",
            "Set precision.compute to bf16 or auto.",
            2,
        )
    if config.parallel.tensor > 1:
        raise UserError(
            "precision.compute fp8 needs whole matrices, but parallel.tensor shards them",
            "Set precision.compute to bf16, or parallel.tensor to 1.",
            2,
        )


def check_sending(config: Config, plan: BatchPlan) -> None:
    """UserError (status 2) for options of DDP that do not fit the run."""
    parallel = config.parallel
    if parallel.compress != "none" or parallel.static_graph:
        name = "static_graph" if parallel.static_graph else "compress"
        if parallel.strategy not in ("ddp", "optimizer"):
            raise UserError(
                f"parallel.{name} is for parallel.strategy ddp, but the strategy is {parallel.strategy}",
                f"Set parallel.strategy to ddp, or remove parallel.{name}.",
                2,
            )
        if parallel.pipeline > 1 or parallel.tensor > 1:
            raise UserError(
                f"parallel.{name} is for DDP, which pipeline and tensor parallelism do not use",
                f"Remove parallel.{name}.",
                2,
            )
        if config.precision.weights == "bf16":
            raise UserError(
                f"parallel.{name} is for DDP, which cannot accumulate gradients of bf16 weights in fp32",
                f"Set precision.weights to fp32, or remove parallel.{name}.",
                2,
            )
    if parallel.static_graph and plan.accumulation > 1:
        raise UserError(
            f"parallel.static_graph needs one forward per update, but this run makes {plan.accumulation}",
            f"Set batch.micro to {plan.micro * plan.accumulation}, or parallel.static_graph to false.",
            2,
        )
    if parallel.static_graph and parallel.unused == "find":
        raise UserError(
            "parallel.static_graph and parallel.unused find contradict each other",
            "Remove one of them.",
            2,
        )
    if parallel.compress == "powersgd" and config.precision.compute == "fp16":
        raise UserError(
            "parallel.compress powersgd does not support fp16: an overflow would stay in its error feedback",
            "Set precision.compute to bf16, or parallel.compress to fp16.",
            2,
        )
