"""What counts as throughput: tokens where samples have them, never padding that the loss does not count."""

import pytest

from trainer.config import resolve
from trainer.throughput import Throughput


@pytest.mark.parametrize(
    ("settings", "per_sample", "unit", "items"),
    [
        ({"data.text": "x"}, 256, "tokens", 700),
        ({"data.text": "x", "model.loss": "m:f"}, 256, "tokens", 1024),
        ({"data.dataset": "m:D"}, 0, "samples", 4),
        ({"data.dataset": "m:D"}, 64, "tokens", 256),
        ({"data.images": "x"}, 1, "samples", 4),
    ],
)
def test_items_of_an_update(settings: dict[str, str], per_sample: int, unit: str, items: int) -> None:
    throughput = Throughput(resolve(None, list(settings.items()), {}).config, per_sample)
    rate = throughput.of(samples=4, count=700, seconds=0.5)
    assert (throughput.unit, rate.items) == (unit, items)
    assert rate.values["samples_per_second"] == 8.0
    assert rate.values.get("tokens_per_second") == (items / 0.5 if unit == "tokens" else None)
