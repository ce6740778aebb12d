"""What the gradients of an update look like, on request: norms of each layer, and how much is too small for fp16."""

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainer.checkpoint.names import plain_names
from trainer.models.plan import plan_of

if TYPE_CHECKING:
    from trainer.step import Look

_EXPONENTS, _BIAS = 256, 127  # of an fp32 number; 0: zero and what is smaller than any normal number
_NOTHING = 2.0**-25  # fp16 rounds it, and all that is smaller, to zero
_NORMAL = -14  # exponent below which fp16 has fewer bits
_WIDTH = 4  # exponents to a bar of the histogram


class Watch:
    """Looks at the gradients of some updates before they are unscaled. `norms`, `underflow`: of every so many-th, 0: of
    none.

    `model` is whole when this is made: the units of its plan are a layer each; what is in none of them counts to the
    module that has it. Its parameters keep their names however it is cut afterwards.
    """

    def __init__(self, model: nn.Module, *, norms: int, underflow: int) -> None:
        self.model = model
        self.norms = norms
        self.underflow = underflow
        blocks = plan_of(model).blocks
        self.layer_of = {name: _layer(name, blocks) for name, _ in model.named_parameters()}
        self.layers = list(dict.fromkeys(self.layer_of.values()))
        self.elsewhere: frozenset[nn.Parameter] = frozenset()  # held here too, but counted by another rank

    def at(self, update: int) -> "Look | None":
        """What looks at the gradients of this update, counted from 1; None where nothing is asked for."""
        norms, underflow = (bool(every) and update % every == 0 for every in (self.norms, self.underflow))
        return partial(self._look, norms, underflow) if norms or underflow else None

    def _look(
        self, norms: bool, underflow: bool, factor: float, holders: int, device: torch.device
    ) -> dict[str, object]:
        """What is asked for, by name. `factor`: what the gradients are to be multiplied with; `holders`: ranks that
        hold each or parts of it. Collective."""
        held = {name: each for name, each in self.model.named_parameters() if each not in self.elsewhere}
        names = plain_names(self.model, held)
        found: dict[str, object] = {}
        if norms:
            found |= self._norms({names[name]: each for name, each in held.items()}, factor, holders, device)
        if underflow:
            gradients = [each.grad for each in held.values() if each.grad is not None]
            found |= described(_histogram(gradients, holders, device), factor)
        return found

    def _norms(
        self, held: dict[str, nn.Parameter], factor: float, holders: int, device: torch.device
    ) -> dict[str, object]:
        squares = torch.zeros(2, len(self.layers), dtype=torch.float64, device=device)
        for name, parameter in held.items():
            at = self.layers.index(self.layer_of[name])
            for row, each in enumerate((parameter.grad, parameter.detach())):
                if each is not None:
                    squares[row, at] += _own(each).double().square().sum() * _share(each, holders)
        _add_up(squares)
        gradients, weights = squares.sqrt().tolist()
        return {
            "grad_norms": {layer: norm * factor for layer, norm in zip(self.layers, gradients, strict=True)},
            "weight_norms": dict(zip(self.layers, weights, strict=True)),
        }


def _histogram(gradients: Sequence[Tensor], holders: int, device: torch.device) -> list[float]:
    """How many values have each exponent of fp32 (the last: infinite or undefined); then how many fp16 makes zero."""
    counts = torch.zeros(_EXPONENTS + 1, dtype=torch.float64, device=device)
    for each in gradients:
        values, share = _own(each).detach().float().flatten(), _share(each, holders)
        exponents = values.view(torch.int32).bitwise_right_shift(23).bitwise_and_(_EXPONENTS - 1)
        counts[:-1] += torch.bincount(exponents, minlength=_EXPONENTS) * share
        counts[-1] += (values.abs() <= _NOTHING).sum() * share
    _add_up(counts)
    found: list[float] = counts.tolist()
    return found


def described(counts: Sequence[float], factor: float) -> dict[str, object]:
    """Of what `_histogram` counted, of gradients as they stand, with the loss scale in them: `underflow`, the share
    that fp16 holds as zero; `subnormal`, the share that it holds with fewer bits; `exponents`, the share by the
    exponent of the gradient proper, that is times `factor`, in bars of 4, each named by its lowest (Micikevicius et
    al., 2018, figure 3)."""
    total = sum(counts[:-1]) or 1.0
    shift = round(math.log2(factor)) if factor > 0 else 0
    small = sum(counts[: _NORMAL + _BIAS])
    bars: dict[int, float] = {}
    for biased in range(1, _EXPONENTS - 1):
        if counts[biased]:
            bar = (biased - _BIAS + shift) // _WIDTH * _WIDTH
            bars[bar] = bars.get(bar, 0.0) + counts[biased] / total
    return {
        "underflow": counts[-1] / total,
        "subnormal": (small - counts[-1]) / total,
        "exponents": {str(bar): round(share, 6) for bar, share in sorted(bars.items())},
    }


def _layer(name: str, blocks: Sequence[str]) -> str:
    """The block that a parameter is in, else its module, else itself."""
    inside = [block for block in blocks if name.startswith(block + ".")]
    return max(inside, key=len) if inside else name.rpartition(".")[0] or name


def _own(tensor: Tensor) -> Tensor:
    part: Any = tensor
    own: Tensor = part.to_local() if hasattr(tensor, "placements") else tensor
    return own


def _share(tensor: Tensor, holders: int) -> float:
    """What this rank's part counts, so that what several ranks hold alike counts once."""
    if holders == 1:
        return 1.0
    from trainer.parallel.gradients import share

    return share(tensor, holders)


def _add_up(values: Tensor) -> None:
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(values)
