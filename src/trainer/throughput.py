"""How much an update trains on per second, in tokens where a sample has tokens. No torch."""

from typing import NamedTuple

from trainer.schema import Config


class Rate(NamedTuple):
    """`items`: tokens of one update over all ranks, or its samples where a sample has no tokens; `values`: as the
    metrics have them."""

    items: int
    values: dict[str, float]


class Throughput:
    """Counts what updates train on. Padding is not counted where the built-in loss says what is no padding.

    `tokens_per_sample`: as the data has it; 0 if unknown.
    """

    def __init__(self, config: Config, tokens_per_sample: int) -> None:
        self.tokens_per_sample = tokens_per_sample
        self.in_tokens = tokens_per_sample > 0 and not config.data.images
        self.counted = not (config.data.dataset or config.model.loss or config.model.build)

    @property
    def unit(self) -> str:
        """What `items` are."""
        return "tokens" if self.in_tokens else "samples"

    def of(self, samples: int, count: int, seconds: float) -> Rate:
        """Return the rate of an update of `samples` samples, of which the loss counted `count` items."""
        seconds = max(seconds, 1e-9)
        values = {"samples_per_second": round(samples / seconds, 3)}
        if not self.in_tokens:
            return Rate(samples, values)
        tokens = count if self.counted else samples * self.tokens_per_sample
        return Rate(tokens, {"tokens_per_second": round(tokens / seconds, 3), **values})
