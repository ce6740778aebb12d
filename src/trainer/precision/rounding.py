"""Weights kept in bf16: each update is made in fp32 and rounded so that small steps are not lost.

bf16 has 8 bits: AdamW at a learning rate of 1e-3 moves a weight of 1.0 by less than half a unit in its last place, and
rounding to the nearest never moves it. Two ways out: rounding up as often as the remainder says (Gupta et al., Deep
Learning with Limited Numerical Precision, 2015), or keeping the remainder for the next update (Kahan, 1965; Zamirai et
al., Revisiting BFloat16 Training, 2020).
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainer.checkpoint.names import plain_names

if TYPE_CHECKING:
    from torch.optim import Optimizer

LOW = torch.bfloat16
REST = "remainder"  # what rounding took from a weight, in the optimizer's state of it
_AT_ONCE = 1 << 22  # weights that are in fp32 at a time, unless one tensor has more: 48 MiB with their moments


class Rounding:
    """`update`: plain (to the nearest), stochastic, kahan; `updates`: those made, of which random rounding is a
    function together with the seed, a tensor's name and an element's place in the whole tensor. So neither ranks nor
    layouts nor resumes change a bit of it."""

    def __init__(self, update: str, seed: int) -> None:
        assert update in ("plain", "stochastic", "kahan"), update
        self.update = update
        self.seed = seed
        self.updates = 0

    def key(self, name: str) -> int:
        """Of one tensor in this update."""
        return zlib.crc32(f"{self.seed} {self.updates} {name}".encode())


class RoundedStep:
    """Steps optimizers whose parameters are bf16 through fp32 copies of a few of them at a time: for
    `Optimizers.apply`.

    Their state is kept in bf16 as well, rounded at random too unless the update is plain: a second moment that decays
    by a thousandth would else never fall. An optimizer that is not torch's own gets all its parameters at once, since
    it may count steps in its groups.
    """

    def __init__(self, rounding: Rounding, model: nn.Module) -> None:
        self.rounding = rounding
        parameters = dict(model.named_parameters())
        plain = plain_names(model, parameters)
        self.names = {parameter: plain[name] for name, parameter in parameters.items()}

    @torch.no_grad()
    def __call__(self, optimizers: Sequence["Optimizer"]) -> None:
        """Applies the gradients."""
        self.rounding.updates += 1
        for optimizer in optimizers:
            groups = optimizer.param_groups
            own = type(optimizer).__module__.startswith("torch.optim")
            try:
                if own:
                    for group in groups:
                        for part in _parts(group["params"]):
                            self._step(optimizer, [({**group, "params": part}, group)])
                else:
                    self._step(optimizer, [(dict(group), group) for group in groups])
            finally:
                optimizer.param_groups = groups

    def _step(self, optimizer: "Optimizer", pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        """One call of the optimizer, over fp32 copies of the parameters of (group for this call, group it is of)."""
        copies: list[tuple[nn.Parameter, nn.Parameter]] = []
        for group, _ in pairs:
            wide = [self._widened(optimizer, parameter) for parameter in group["params"]]
            copies += zip(group["params"], wide, strict=True)
            group["params"] = wide
        optimizer.param_groups = [group for group, _ in pairs]
        optimizer.step()
        for group, kept in pairs:
            kept.update({name: value for name, value in group.items() if name != "params"})
        for parameter, copy in copies:
            if copy is not parameter:
                self._narrowed(optimizer, parameter, copy)

    def _widened(self, optimizer: "Optimizer", parameter: nn.Parameter) -> nn.Parameter:
        """An fp32 copy that has the gradient and the state; what is no bf16, or will not be updated, is its own."""
        if parameter.dtype != LOW or parameter.grad is None:
            return parameter
        state = optimizer.state.pop(parameter, {})
        rest = state.pop(REST, None)
        value = parameter.detach().float()
        if rest is not None and self.rounding.update == "kahan":
            value += rest
        copy = nn.Parameter(value)
        copy.grad = parameter.grad.float()
        if state:
            optimizer.state[copy] = {
                name: each.float() if isinstance(each, Tensor) and each.dtype == LOW else each
                for name, each in state.items()
            }
        return copy

    def _narrowed(self, optimizer: "Optimizer", parameter: nn.Parameter, copy: nn.Parameter) -> None:
        """Puts a stepped copy and its state back, rounded."""
        name = self.names[parameter]
        state = optimizer.state.pop(copy, {})
        kahan = self.rounding.update == "kahan"
        for part, value in state.items():
            if part != "step" and _is_fp32(value) and value.shape == parameter.shape:
                state[part] = torch.empty_like(value, dtype=LOW)
                self._round(value, state[part], f"{name} {part}", nearest=self.rounding.update == "plain")
        value = copy.detach()
        self._round(value, parameter.detach(), name, nearest=kahan or self.rounding.update == "plain")
        if kahan:
            state[REST] = (value - parameter.detach().float()).to(LOW)
        if state:
            optimizer.state[parameter] = state

    def _round(self, value: Tensor, into: Tensor, name: str, nearest: bool) -> None:
        if nearest:
            into.copy_(value)
        else:
            own, target, key = _own(value), _own(into), self.rounding.key(name)
            rows = max(1, _AT_ONCE // max(1, own[:1].numel())) if own.ndim else 1
            for start in range(0, own.shape[0] if own.ndim else 1, rows):
                part = slice(start, start + rows) if own.ndim else ...
                target[part] = rounded_at_random(own[part], noise(places(value, start, rows), key))


def rounded_at_random(value: Tensor, noise: Tensor) -> Tensor:
    """fp32 values, each one of its two neighbours in bf16: the farther from zero as often as the remainder says.
    `noise`: int32 in [0, 65536), added to the 16 bits that bf16 has not."""
    bits = value.contiguous().view(torch.int32) + noise
    return bits.bitwise_and_(-65536).view(torch.float32)


def noise(places: Tensor, key: int) -> Tensor:
    """int32 in [0, 65536) for int64 places: the middle bits of a multiplied and shifted sum (as in splitmix64)."""
    mixed = (places + (key << 24)) * -7046029254386353131
    mixed ^= mixed >> 31
    mixed *= -4658895280553007687
    return ((mixed >> 32) & 0xFFFF).to(torch.int32)


def places(tensor: Tensor, first: int = 0, rows: int | None = None) -> Tensor:
    """For each element of some of the rows that this rank holds, its place in the whole tensor, counted along the last
    dimension first: int64 of their shape, broadcast over nothing."""
    own = _own(tensor)
    offset: Sequence[int] = (0,) * own.ndim
    if own is not tensor:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        whole: Any = tensor
        _, offset = compute_local_shape_and_global_offset(tensor.shape, whole.device_mesh, whole.placements)
    found = torch.zeros((), dtype=torch.int64, device=own.device)
    stride = 1
    for dimension in range(own.ndim - 1, -1, -1):
        start, size = 0, own.shape[dimension]
        if dimension == 0:
            start = first
            size = min(size - first, rows if rows is not None else size)
        start += int(offset[dimension])
        along = torch.arange(start, start + size, device=own.device) * stride
        found = found + along.view(-1, *(1,) * (own.ndim - 1 - dimension))
        stride *= tensor.shape[dimension]
    return found


def _is_fp32(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _own(tensor: Tensor) -> Tensor:
    """What this rank holds of it."""
    part: Any = tensor
    own: Tensor = part.to_local() if hasattr(tensor, "placements") else tensor
    return own


def _parts(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Neighbours of at most so many weights together."""
    part: list[nn.Parameter] = []
    size = 0
    for parameter in parameters:
        if part and size + parameter.numel() > _AT_ONCE:
            yield part
            part, size = [], 0
        part.append(parameter)
        size += parameter.numel()
    if part:
        yield part
