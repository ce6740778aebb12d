"""Schedule-free AdamW (Defazio et al., "The Road Less Scheduled", 2024, algorithm 1): averaging in place of a rate
that falls."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainer.optim.local import local, locals_of, with_gradient


class ScheduleFreeAdamW(Optimizer):
    """The weights in the model are y, where gradients are taken: y = b1 x + (1 - b1) z. z is what AdamW would move and
    is kept in the state; x, the average of all z weighted with the square of their rates, is what is to be used and
    follows from both (`average`). Memory of AdamW: z takes the place of the first moment.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        for group in self.param_groups:
            group["updates"] = 0
            group["weights"] = 0.0  # sum of squared rates

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here asks twice for a loss
        """Applies the gradients, taken at y."""
        for group in self.param_groups:
            first, second = group["betas"]
            group["updates"] += 1
            rate = group["lr"] * math.sqrt(1.0 - second ** group["updates"])
            group["weights"] += rate**2
            share = rate**2 / group["weights"] if group["weights"] else 0.0
            held = with_gradient(group)
            if not held:
                continue
            for parameter in held:
                if not self.state[parameter]:
                    self.state[parameter]["exp_avg_sq"] = torch.zeros_like(parameter)
                    self.state[parameter]["z"] = parameter.detach().clone()
            ys = locals_of(held)
            gradients = locals_of([parameter.grad for parameter in held if parameter.grad is not None])
            squares = [local(self.state[parameter]["exp_avg_sq"]) for parameter in held]
            zs = [local(self.state[parameter]["z"]) for parameter in held]
            torch._foreach_mul_(squares, second)
            torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - second)
            steps = torch._foreach_sqrt(squares)
            torch._foreach_add_(steps, group["eps"])
            torch._foreach_reciprocal_(steps)
            torch._foreach_mul_(steps, gradients)
            if group["weight_decay"]:
                torch._foreach_add_(steps, ys, alpha=group["weight_decay"])
            # y' = b1 x' + (1 - b1) z' with x' = (1 - c) x + c z' and z' = z - rate step, in terms of y and z
            torch._foreach_lerp_(ys, zs, share)
            torch._foreach_add_(ys, steps, alpha=-rate * (1.0 - first * (1.0 - share)))
            torch._foreach_add_(zs, steps, alpha=-rate)

    def average(self, parameter: Tensor) -> Tensor:
        """This rank's part of x for a parameter of this optimizer that holds y."""
        first = next(group["betas"][0] for group in self.param_groups for each in group["params"] if each is parameter)
        own = local(parameter)
        if not self.state.get(parameter):
            return own.clone()
        return own.lerp(local(self.state[parameter]["z"]), 1.0 - 1.0 / first)
