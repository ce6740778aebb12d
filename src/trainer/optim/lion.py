"""Lion: the sign of a momentum (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from trainer.optim.local import local, locals_of, with_gradient


class Lion(Optimizer):
    """w -= lr (sign(b1 m + (1 - b1) g) + decay w), then m = b2 m + (1 - b2) g. One moment: half of AdamW's state."""

    def __init__(
        self, params: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here asks twice for a loss
        """Applies the gradients."""
        for group in self.param_groups:
            held = with_gradient(group)
            if not held:
                continue
            for parameter in held:
                if not self.state[parameter]:
                    self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
            weights = locals_of(held)
            gradients = locals_of([parameter.grad for parameter in held if parameter.grad is not None])
            moments = [local(self.state[parameter]["exp_avg"]) for parameter in held]
            first, second = group["betas"]
            directions = torch._foreach_lerp(moments, gradients, 1.0 - first)
            torch._foreach_sign_(directions)
            if group["weight_decay"]:
                torch._foreach_mul_(weights, 1.0 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(weights, directions, alpha=-group["lr"])
            torch._foreach_lerp_(moments, gradients, 1.0 - second)
