"""Dynamic loss scaling for fp16."""

from trainer.errors import UserError

_LARGEST = 2.0**126  # a larger one would be infinite as the seed of a backward in fp32


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
            self.scale = min(2.0 * self.scale, _LARGEST)
            self.good = 0

    def overflowed(self) -> None:
        """Counts one skipped update; a scale below the minimum means that no scale helps."""
        self.scale *= 0.5
        self.good = 0
        if self.scale < self.minimum:
            raise UserError(
                f"the loss scale fell to {self.scale:g}: every update overflows fp16",
                "Lower optim.lr, or set precision.compute to bf16.",
            )

    def state(self) -> dict[str, float]:
        """What a resumed run needs to go on bit for bit."""
        return {"scale": self.scale, "good": self.good}

    def load(self, state: dict[str, float]) -> None:
        """Takes over `state()` of an earlier run."""
        self.scale = float(state["scale"])
        self.good = int(state["good"])
