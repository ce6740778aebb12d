"""What `precision.compute auto` becomes."""

import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from trainer.schema import Precision


def choose(settings: "Precision", device: torch.device, width: int) -> tuple[str, str]:
    """Decides `auto`: (format, one sentence why). On CPU by timing a layer's product, since CPUs differ by 10x here."""
    if settings.compute != "auto":
        return settings.compute, "as set"
    if settings.weights == "bf16":
        return "bf16", "as the weights are"
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bf16", "this GPU has bf16"
        return "fp32", "this GPU has no bf16"
    single, half = _seconds(torch.float32, width), _seconds(torch.bfloat16, width)
    ratio = single / half
    said = f"measured here: bf16 products at {ratio:.2f}x the speed of fp32"
    return ("bf16" if ratio >= 1.25 else "fp32"), said


def _seconds(dtype: torch.dtype, width: int, rows: int = 1024, rounds: int = 5) -> float:
    """Best time of casting fp32 weights of one layer and multiplying, forward and backward."""
    width = max(32, min(width, 1024))
    weight = torch.full((4 * width, width), 0.01)
    sample = torch.full((rows, width), 0.01, dtype=dtype)
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        cast = weight.to(dtype)
        out = sample @ cast.t()
        out @ cast
        out.t() @ sample
        best = min(best, time.perf_counter() - start)
    return best
