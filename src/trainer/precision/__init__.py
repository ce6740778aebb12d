"""Number formats of a run as one value: dtypes, autocast, loss scale, rounding of weights."""

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainer.formats import choose_attention
from trainer.precision.scale import LossScale

if TYPE_CHECKING:
    from trainer.optim import Optimizers
    from trainer.precision.rounding import Rounding
    from trainer.schema import Precision

__all__ = ["DTYPES", "LossScale", "Policy", "make_policy"]

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.bfloat16,  # all but the products themselves
}


class Policy:
    """`compute`: dtype of matrix products; `weights`: dtype of parameters; `attention`: dtype of attention, or None for
    that of `compute`; `scale`: the loss scale, or None; `gathered`: dtype in which sharded weights are sent and used,
    or None for their own; `rounding`: how weights of bf16 are updated, or None; `products8`: products in 8 bits."""

    def __init__(
        self,
        compute: torch.dtype,
        weights: torch.dtype,
        attention: torch.dtype | None = None,
        scale: LossScale | None = None,
        *,
        gathered: torch.dtype | None = None,
        rounding: "Rounding | None" = None,
        products8: bool = False,
    ) -> None:
        self.compute = compute
        self.weights = weights
        self.attention = attention
        self.scale = scale
        self.gathered = gathered
        self.rounding = rounding
        self.products8 = products8

    def autocast(self, device_type: str) -> contextlib.AbstractContextManager[Any]:
        """The context of one forward: also for bf16 weights, as inputs may be wider."""
        if self.compute in (torch.bfloat16, torch.float16):
            return torch.autocast(device_type, dtype=self.compute)
        return contextlib.nullcontext()

    def cast(self, model: nn.Module, device: torch.device | None) -> None:
        """Moves `model` there (None: it stays where it is), its parameters in their format. Gradients of bf16 weights
        add up in fp32: 512 ones would be 256 in bf16."""
        model.to(device=device, dtype=self.weights)
        if self.weights == torch.bfloat16:
            for parameter in model.parameters():
                if parameter.is_floating_point():
                    parameter.grad_dtype = torch.float32
        if self.attention is not None and hasattr(model, "attention_dtype"):
            own: Any = model
            own.attention_dtype = self.attention
        if self.products8:
            from trainer.precision.float8 import convert

            convert(model)

    def keep_small_steps(self, optimizers: "Optimizers", model: nn.Module) -> None:
        """Lets optimizers of a model with bf16 weights step so that what the format cannot hold is not lost."""
        if self.rounding is not None:
            from trainer.precision.rounding import RoundedStep

            optimizers.apply = RoundedStep(self.rounding, model)

    def state(self) -> dict[str, Any]:
        """What a resumed run needs to go on bit for bit."""
        return {
            "loss_scale": self.scale.state() if self.scale else None,
            "rounded_updates": self.rounding.updates if self.rounding else None,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Takes over `state()` of an earlier run, as far as this one has the same parts."""
        if self.scale and state["loss_scale"]:
            self.scale.load(state["loss_scale"])
        if self.rounding and state.get("rounded_updates"):
            self.rounding.updates = int(state["rounded_updates"])


def make_policy(settings: "Precision", compute: str, device: torch.device, seed: int = 0) -> Policy:
    """`compute` is `settings.compute` with auto already decided (`formats.choose_compute`); `seed`: of random
    rounding. Raises UserError (status 2) for a device that lacks the products asked for."""
    if compute == "fp8":
        from trainer.precision.float8 import need_products

        need_products(device)
    scaled = compute == "fp16" and settings.loss_scale > 0
    scale = LossScale(settings.loss_scale, settings.growth, settings.min_scale) if scaled else None
    weights = DTYPES["fp64" if compute == "fp64" else settings.weights]
    attention = choose_attention(settings.attention, compute, device.type)
    rounding = None
    if weights == torch.bfloat16:
        from trainer.precision.rounding import Rounding

        rounding = Rounding(settings.update, seed)
    gathered = DTYPES[compute] if settings.gathered == "compute" and DTYPES[compute] != weights else None
    return Policy(
        DTYPES[compute],
        weights,
        DTYPES[attention] if attention != compute else None,
        scale,
        gathered=gathered,
        rounding=rounding,
        products8=compute == "fp8",
    )
