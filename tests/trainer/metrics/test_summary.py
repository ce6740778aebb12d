"""Numbers as people read them."""

import pytest

from trainer.metrics.summary import format_bytes, format_count, format_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (41.4, "0:41"),
        (59.6, "1:00"),
        (725, "12:05"),
        (10800, "3:00:00"),
        (183600, "2d 3:00:00"),
        (-5, "0:00"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (7.25, "7.25"),
        (615.0, "615"),
        (12_345, "12.3k"),
        (999.6, "1.00k"),
        (1_500_000, "1.50M"),
        (9.999e12, "10.0T"),
    ],
)
def test_counts(number: float, text: str) -> None:
    assert format_count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 bytes"), (512, "512 bytes"), (5790, "5.65 KiB"), (1 << 20, "1.00 MiB"), (3 << 40, "3.00 TiB")],
)
def test_bytes(number: int, text: str) -> None:
    assert format_bytes(number) == text
