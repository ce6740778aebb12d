"""Settings that are legal and hardly meant: said in one line each before training. No torch."""

from trainer.config import global_batch
from trainer.schema import Config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer.data.datasets import Datasets


def of_settings(config: Config, cores: int) -> list[str]:
    """Return what the settings alone show; `cores`: those that a rank on this machine may use."""
    found = []
    if config.run.steps and config.optim.warmup >= config.run.steps:
        found.append(_warmup(config, config.run.steps))
    if config.run.threads > 4 * cores:
        found.append(f"run.threads = {config.run.threads:,} is more than four times the {cores} cores of this machine")
    return found


def of_data(config: Config, data: "Datasets", total: int) -> list[str]:
    """Return what the settings show together with the data; `total`: updates of the run."""
    found = []
    samples = len(data.train)
    batch = global_batch(config)
    if batch > samples:
        found.append(
            f"an update takes {batch:,} samples and the training data has {samples:,}: every epoch is one update"
        )
    tokens = data.files.train.tokens if data.files is not None else 0
    if tokens and config.data.sequence >= tokens:
        found.append(
            f"data.sequence = {config.data.sequence:,} is longer than the training data of {tokens:,} tokens: "
            f"{1 - (tokens - 1) / (samples * config.data.sequence):.0%} of what is computed is padding"
        )
    if not config.run.steps and total and config.optim.warmup >= total:
        found.append(_warmup(config, total))
    return found


def _warmup(config: Config, total: int) -> str:
    return (
        f"optim.warmup = {config.optim.warmup:,} is not shorter than the run of {total:,} updates: "
        "the learning rate never reaches optim.lr"
    )
