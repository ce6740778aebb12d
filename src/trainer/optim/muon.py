"""Muon (Jordan et al., 2024): a momentum whose matrix is made orthogonal, in whatever way the matrix is cut."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor

from trainer.optim.local import is_cut, local, with_gradient

# the quintic a x + b x^3 + c x^5, chosen by Jordan for a steep slope at 0
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ROUNDS = 5


class Muon(torch.optim.Muon):
    """torch's Muon with Nesterov momentum and its state, but: the iteration runs in `dtype` (fp64 weights: in fp64),
    where torch's is always in bf16; and a matrix whose rows are on several ranks is made orthogonal by one of them.

    `device`: where that is computed; the weights may lie elsewhere. A matrix cut otherwise is gathered by all ranks.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float,
        momentum: float,
        device: torch.device,
        dtype: torch.dtype,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=True)
        self.device = device
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here asks twice for a loss
        """Applies the gradients. Collective over the ranks that matrices are cut over."""
        for group in self.param_groups:
            for together in _rounds(with_gradient(group)):
                directions = [self._direction(parameter, group["momentum"]) for parameter in together]
                for parameter, part in zip(together, self._orthogonal(together, directions), strict=True):
                    own = local(parameter)
                    rows, columns = parameter.shape
                    own.mul_(1.0 - group["lr"] * group["weight_decay"])
                    own.add_(part.to(own), alpha=-group["lr"] * math.sqrt(max(1.0, rows / columns)))

    def _direction(self, parameter: Tensor, momentum: float) -> Tensor:
        """This rank's part of the Nesterov momentum."""
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        assert parameter.grad is not None
        gradient, moment = local(parameter.grad), local(state["momentum_buffer"])
        moment.lerp_(gradient, 1.0 - momentum)
        return gradient.lerp(moment, momentum)

    def _orthogonal(self, together: list[Tensor], parts: list[Tensor]) -> list[Tensor]:
        """This rank's part of each direction made orthogonal."""
        dtype = torch.float64 if parts[0].dtype == torch.float64 else self.dtype
        if not is_cut(together[0]):
            return [orthogonal(parts[0].to(self.device, dtype))]
        from torch.distributed.tensor import DTensor

        from trainer.optim.exchange import once_each, row_ranks

        cut = [cast("DTensor", parameter) for parameter in together]
        # gloo sends no bf16 everywhere: there it is rounded on arrival
        sent = [part.to(self.device, dtype if self.device.type == "cuda" else part.dtype) for part in parts]
        ranks = row_ranks(cut[0])
        if ranks is not None:
            rows = [parameter.shape[0] for parameter in cut]
            return once_each(sent, rows, ranks, lambda whole: orthogonal(whole.to(dtype)).to(whole.dtype))
        from trainer.checkpoint.parts import part_like

        mesh, placements = cut[0].device_mesh, cut[0].placements
        shape, stride = cut[0].shape, cut[0].stride()
        whole = DTensor.from_local(sent[0], mesh, placements, run_check=False, shape=shape, stride=stride).full_tensor()
        return [part_like(orthogonal(whole.to(dtype)), cut[0]).to_local()]


def orthogonal(matrix: Tensor) -> Tensor:
    """`matrix` with singular values near 1 (0.7 to 1.2), by five rounds of a quintic Newton-Schulz iteration on the
    matrix over its norm; in the matrix's type and shape."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    wide = wide / wide.norm().clamp(min=1e-7)
    for _ in range(_ROUNDS):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=_B, alpha=_C), wide, beta=_A)
    return wide if matrix.shape[0] <= matrix.shape[1] else wide.T


def _rounds(parameters: list[Tensor]) -> Iterator[list[Tensor]]:
    """In their order: as many neighbours, cut by rows over the same ranks, as there are ranks; else one."""
    if not any(is_cut(parameter) for parameter in parameters):
        yield from ([parameter] for parameter in parameters)
        return
    from torch.distributed import get_world_size

    from trainer.optim.exchange import row_ranks

    found: list[Tensor] = []
    before = None
    for parameter in parameters:
        ranks = row_ranks(cast(Any, parameter)) if is_cut(parameter) else None
        if found and (ranks is None or ranks is not before or len(found) == get_world_size(ranks)):
            yield found
            found = []
        found.append(parameter)
        before = ranks
    if found:
        yield found
