"""Number formats of a run as one value: dtypes, autocast, loss scale."""

import contextlib
import time
from typing import TYPE_CHECKING, Any

import torch

from trainer.errors import UserError

if TYPE_CHECKING:
    from trainer.schema import Precision

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class LossScale:
    """Dynamic loss scaling: halve on overflow, double after `growth` applied updates in a row (Micikevicius et al.,
    Mixed Precision Training, 2018, section 3.2)."""

    def __init__(self, scale: float, growth: int, minimum: float) -> None:
        self.scale = scale
        self.growth = growth
        self.minimum = minimum
        self.good = 0

    def applied(self) -> None:
        """Counts one applied update; called after its gradients were unscaled with the old scale."""
        self.good += 1
        if self.good >= self.growth:
            self.scale *= 2.0
            self.good = 0

    def overflowed(self) -> None:
        """Counts one skipped update; a scale below the minimum means that no scale helps."""
        self.scale *= 0.5
        self.good = 0
        if self.scale < self.minimum:
            raise UserError(
                f"the loss scale fell to {self.scale:g}: every update overflows fp16",
                "lower the learning rate, or use --precision.compute bf16",
            )

    def state(self) -> dict[str, float]:
        """What a resumed run needs to go on bit for bit."""
        return {"scale": self.scale, "good": self.good}

    def load(self, state: dict[str, float]) -> None:
        """Takes over `state()` of an earlier run."""
        self.scale = float(state["scale"])
        self.good = int(state["good"])


class Policy:
    """`compute`: dtype of matrix products; `weights`: dtype of parameters; `attention`: dtype of attention, or None for
    that of `compute`; `scale`: the loss scale, or None."""

    def __init__(
        self, compute: torch.dtype, weights: torch.dtype, attention: torch.dtype | None, scale: LossScale | None
    ) -> None:
        self.compute = compute
        self.weights = weights
        self.attention = attention
        self.scale = scale

    def autocast(self, device_type: str) -> contextlib.AbstractContextManager[Any]:
        """The context of one forward."""
        if self.compute in (torch.bfloat16, torch.float16) and self.weights != self.compute:
            return torch.autocast(device_type, dtype=self.compute)
        return contextlib.nullcontext()


def make_policy(settings: "Precision", compute: str, device: torch.device) -> Policy:
    """`compute` is `settings.compute` with auto already decided by `choose`."""
    scaled = compute == "fp16" and settings.loss_scale > 0
    scale = LossScale(settings.loss_scale, settings.growth, settings.min_scale) if scaled else None
    weights = DTYPES["fp64" if compute == "fp64" else settings.weights]
    attention = settings.attention
    if attention == "auto":
        attention = "fp32" if device.type == "cpu" and compute in ("bf16", "fp16") else compute
    return Policy(DTYPES[compute], weights, DTYPES[attention] if attention != compute else None, scale)


def choose(settings: "Precision", device: torch.device, width: int) -> tuple[str, str]:
    """Decides `auto`: (format, one sentence why). On CPU by timing a layer's product, since CPUs differ by 10x here."""
    if settings.compute != "auto":
        return settings.compute, "as set"
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
