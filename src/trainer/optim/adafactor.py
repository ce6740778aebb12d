"""Adafactor (Shazeer and Stern, 2018) as torch has it, for cut parameters too."""

from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.optimizer import _get_scalar_dtype

from trainer.optim.local import is_cut, local, with_gradient


class Adafactor(torch.optim.Adafactor):
    """torch's Adafactor; its operations refuse DTensors, so that the same formula is here for those.

    The factors of a matrix, one number a row and one a column, are whole on every rank; four small reductions for each.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here asks twice for a loss
        """Applies the gradients. Collective over the ranks that parameters are cut over."""
        if not any(is_cut(parameter) for group in self.param_groups for parameter in group["params"]):
            super().step()  # type: ignore[no-untyped-call]  # torch's
            return
        for group in self.param_groups:
            for parameter in with_gradient(group):
                self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, own = self.state[parameter], local(parameter)
        gradient = local(parameter.grad)  # type: ignore[arg-type]  # with_gradient
        if not state:
            state["step"] = torch.tensor(0.0, dtype=_get_scalar_dtype())
        state["step"] += 1
        count = state["step"].item()
        small, least = group["eps"]
        small = torch.finfo(own.dtype).eps if small is None else small
        rate = max(least, _rms(own, parameter)) * min(group["lr"], count**-0.5)
        fresh = count ** group["beta2_decay"]
        own.mul_(1.0 - group["lr"] * group["weight_decay"])
        variance = self._variance(state, gradient.square(), parameter, fresh, small)
        update = variance.clamp_(min=small * small).rsqrt_().mul_(gradient)
        own.add_(update, alpha=-rate / max(1.0, _rms(update, parameter) / group["d"]))

    def _variance(
        self, state: dict[str, Any], squares: Tensor, parameter: Tensor, fresh: float, small: float
    ) -> Tensor:
        """This rank's part of the estimated second moment; a new tensor."""
        if parameter.ndim < 2:
            if "variance" not in state:
                state["variance"] = torch.zeros_like(parameter)
            moment = local(state["variance"])
            return moment.lerp_(squares, fresh).clone()
        for name, dimension in (("row_var", -1), ("col_var", -2)):
            mean = _sum(squares, parameter, dimension) / parameter.shape[dimension]
            # a checkpoint's comes cut where it has the parameter's own shape
            kept = state.get(name, torch.zeros_like(mean))
            state[name] = (kept.full_tensor() if is_cut(kept) else kept).lerp(mean, fresh)
        rows, columns = state["row_var"], state["col_var"]
        scale = rows.mean(dim=-2, keepdim=True).clamp(min=small)
        at = _place(parameter)
        estimate: Tensor = (rows / scale)[(*at[:-1], slice(None))] @ columns[(*at[:-2], slice(None), at[-1])]
        return estimate


def _place(parameter: Tensor) -> list[slice]:
    """Where this rank's part lies in the whole."""
    if not is_cut(parameter):
        return [slice(None)] * parameter.ndim
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    cut = cast("DTensor", parameter)
    shape, offset = compute_local_shape_and_global_offset(cut.shape, cut.device_mesh, cut.placements)
    return [slice(start, start + size) for start, size in zip(offset, shape, strict=True)]


def _like(own: Tensor, parameter: Tensor) -> Tensor:
    """`own` as part of a tensor that is cut as `parameter` is."""
    if not is_cut(parameter):
        return own
    from torch.distributed.tensor import DTensor

    cut = cast("DTensor", parameter)
    shape, stride = cut.shape, cut.stride()
    own = own.to(cut.device_mesh.device_type)  # offloaded weights are reduced where ranks can talk
    return DTensor.from_local(own, cut.device_mesh, cut.placements, run_check=False, shape=shape, stride=stride)


def _sum(own: Tensor, parameter: Tensor, dimension: int | None = None) -> Tensor:
    """Of the whole, over one dimension, which stays, or over all; the same on every rank."""
    whole = _like(own, parameter)
    found = whole.sum() if dimension is None else whole.sum(dim=dimension, keepdim=True)
    total: Tensor = found.full_tensor() if is_cut(found) else found  # type: ignore[attr-defined]  # is_cut
    return total.to(own.device)


def _rms(own: Tensor, parameter: Tensor) -> float:
    return float((_sum(own.square(), parameter) / parameter.numel()).sqrt())
