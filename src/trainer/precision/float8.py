"""Products of linear layers in 8 bits, by torch's own scaled product; no other package.

Formats and scaling as in Micikevicius et al., FP8 Formats for Deep Learning, 2022: e4m3 for values and weights, e5m2
for gradients, one scale a tensor, taken from its largest value each time. Weights, sums and all else stay as they are.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from trainer.errors import UserError

VALUES, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
_MULTIPLE = 16  # sizes that the scaled product takes


def need_products(device: torch.device) -> None:
    """UserError (status 2) for a device that has none of 8 bits."""
    reason = missing(device)
    if reason:
        raise UserError(f"precision.compute fp8: {reason}", "Set precision.compute to bf16 or auto.", 2)


def missing(device: torch.device) -> str:
    """Why `device` has no products of 8 bits; empty if it has."""
    need = "needs a GPU with 8-bit products (compute capability 8.9 or newer)"
    if device.type != "cuda":
        return f"{need}, and this run is on {device.type}"
    capability = torch.cuda.get_device_capability(device)
    if capability >= (8, 9):
        return ""
    name = torch.cuda.get_device_name(device)
    return f"{need}, and {name} has {capability[0]}.{capability[1]}"


def convert(model: nn.Module) -> int:
    """Lets every linear layer multiply in 8 bits, but output layers and those of other sizes; how many it were."""
    outputs = {
        module.get_submodule(name) for module in model.modules() for name in getattr(module, "output_layers", ())
    }
    found = 0
    for module in model.modules():
        if isinstance(module, nn.Linear) and module not in outputs and _fits(module):
            own: Any = module
            own.forward = partial(_linear, module)
            found += 1
    return found


def _fits(module: nn.Linear) -> bool:
    return module.in_features % _MULTIPLE == 0 and module.out_features % _MULTIPLE == 0


def _linear(module: nn.Linear, x: Tensor) -> Tensor:
    """The layer's forward: (..., inputs) -> (..., outputs) in bf16; in bf16 altogether where the rows do not fit."""
    flat = x.reshape(-1, x.shape[-1]).to(torch.bfloat16)
    weight = module.weight.to(torch.bfloat16)
    out = flat @ weight.t() if flat.shape[0] % _MULTIPLE else _Product.apply(flat, weight)
    out = out.view(*x.shape[:-1], -1)
    return out if module.bias is None else out + module.bias.to(out.dtype)


class _Product(torch.autograd.Function):
    """x (rows, inputs) @ weight (outputs, inputs) transposed, bf16; each of the three products of forward and backward
    in 8 bits."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        small_x, scale_x = scaled(x, VALUES)
        small_weight, scale_weight = scaled(weight, VALUES)
        ctx.save_for_backward(small_x, scale_x, small_weight, scale_weight)
        return _multiply(small_x, small_weight.t(), scale_x, scale_weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        small_x, scale_x, small_weight, scale_weight = ctx.saved_tensors
        small, scale = scaled(gradient, GRADIENTS)
        # the second factor has to lie column by column
        of_x = _multiply(small, small_weight.t().contiguous().t(), scale, scale_weight)
        of_weight = _multiply(small.t().contiguous(), small_x.t().contiguous().t(), scale, scale_x)
        return of_x, of_weight


def scaled(value: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """The value in 8 bits, its largest element the largest there is, and the fp32 factor that undoes it. Infinite and
    undefined values stay such, so that an overflow is seen."""
    largest = value.abs().amax().float().clamp_min(1e-12)
    factor = largest / torch.finfo(kind).max
    return (value.float() / factor).to(kind), factor


def _multiply(first: Tensor, second: Tensor, scale: Tensor, other: Tensor) -> Tensor:
    product: Tensor = torch._scaled_mm(first, second, scale_a=scale, scale_b=other, out_dtype=torch.bfloat16)
    return product
