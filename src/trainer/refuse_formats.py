"""Number formats and ways of sending gradients that do not go together: arithmetic of settings, no torch."""

from trainer.errors import UserError
from trainer.mesh import BatchPlan
from trainer.schema import Config


def check_formats(config: Config) -> None:
    """UserError (status 2) for formats that contradict each other or the layout."""
    precision, parallel = config.precision, config.parallel
    if precision.weights == "bf16" and parallel.strategy == "optimizer":
        raise UserError(
            "parallel.strategy optimizer keeps fp32 weights: it sends them whole after every update, before they could "
            "be rounded",
            "--parallel.strategy gradients, or --precision.weights fp32",
            2,
        )
    if precision.gathered == "compute" and parallel.strategy not in ("gradients", "full"):
        raise UserError(
            f"precision.gathered compute has no meaning with strategy {parallel.strategy}, which gathers no weights",
            "--parallel.strategy full, or leave precision.gathered out",
            2,
        )
    if precision.compute == "fp8":
        _check_fp8(config)


def _check_fp8(config: Config) -> None:
    if config.run.device == "cpu":
        raise UserError(
            "precision.compute fp8 needs a GPU with 8-bit products (compute capability 8.9 or newer), and run.device "
            "is cpu",
            "--precision.compute bf16, or auto",
            2,
        )
    if config.parallel.tensor > 1:
        raise UserError(
            "precision.compute fp8 multiplies whole matrices, and parallel.tensor cuts them",
            "--precision.compute bf16, or --parallel.tensor 1",
            2,
        )


def check_sending(config: Config, plan: BatchPlan) -> None:
    """UserError (status 2) for options of DDP that do not fit the run."""
    parallel = config.parallel
    if parallel.compress != "none" or parallel.static_graph:
        name = "static_graph" if parallel.static_graph else "compress"
        if parallel.strategy not in ("ddp", "optimizer"):
            raise UserError(
                f"parallel.{name} is of strategy ddp, and this is {parallel.strategy}",
                f"--parallel.strategy ddp, or leave parallel.{name} out",
                2,
            )
        if parallel.pipeline > 1 or parallel.tensor > 1:
            raise UserError(
                f"parallel.{name} is of DDP, which has no part in a model that is cut into stages or matrices",
                f"leave parallel.{name} out",
                2,
            )
        if config.precision.weights == "bf16":
            raise UserError(
                f"parallel.{name} is of DDP, which cannot add up the gradients of bf16 weights in fp32",
                f"--precision.weights fp32, or leave parallel.{name} out",
                2,
            )
    if parallel.static_graph and plan.accumulation > 1:
        raise UserError(
            f"parallel.static_graph takes one forward an update, and this run makes {plan.accumulation}",
            f"--batch.micro {plan.micro * plan.accumulation}, or --parallel.static_graph false",
            2,
        )
    if parallel.static_graph and parallel.unused == "find":
        raise UserError(
            "parallel.static_graph says that every update uses the same parameters, parallel.unused that some do not",
            "leave one of them out",
            2,
        )
    if parallel.compress == "powersgd" and config.precision.compute == "fp16":
        raise UserError(
            "parallel.compress powersgd keeps what it did not send, and an overflow of fp16 would never leave that",
            "--precision.compute bf16, or --parallel.compress fp16",
            2,
        )
