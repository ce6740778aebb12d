"""State of an optimizer of which each rank keeps some parameters' (ZeRO-1), brought to the rank that writes."""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import Optimizer


def is_spread(optimizer: Optimizer) -> bool:
    """Does this rank keep a part only of its state? Does not import what could only make one."""
    module = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    return module is not None and isinstance(optimizer, module.ZeroRedundancyOptimizer)


def own_part(optimizer: Optimizer) -> Optimizer:
    """What updates the parameters of this rank: the optimizer itself, unless it is spread."""
    if not is_spread(optimizer):
        return optimizer
    part: Optimizer = optimizer.optim  # type: ignore[attr-defined]  # is_spread
    return part


def collected(optimizer: Optimizer, parameters: Sequence[torch.Tensor]) -> dict[torch.Tensor, dict[str, Any]]:
    """State of each of `parameters`, on the first rank of those it is spread over; elsewhere of this rank's own.

    Collective over these ranks. Tensors are sent one at a time, in the order of `parameters`.
    """
    own = own_part(optimizer).state
    if not is_spread(optimizer):
        return {parameter: own.get(parameter, {}) for parameter in parameters}
    group: torch.distributed.ProcessGroup = optimizer.process_group  # type: ignore[attr-defined]  # is_spread
    first, rank = torch.distributed.get_global_rank(group, 0), torch.distributed.get_rank(group)
    described = [_described(own[parameter]) if parameter in own else None for parameter in parameters]
    everybody: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.gather_object(described, everybody if rank == 0 else None, dst=first, group=group)
    found: dict[torch.Tensor, dict[str, Any]] = {}
    for index, parameter in enumerate(parameters):
        if rank:
            for key in described[index] or ():
                if _is_sent(own[parameter][key]):
                    torch.distributed.send(own[parameter][key].contiguous(), first, group=group)
            found[parameter] = own.get(parameter, {})
            continue
        owner = next((each for each, theirs in enumerate(everybody) if theirs[index] is not None), 0)
        if owner == 0:
            found[parameter] = own.get(parameter, {})
            continue
        source = torch.distributed.get_global_rank(group, owner)
        found[parameter] = {}
        for key, value in everybody[owner][index].items():
            if isinstance(value, _Sent):
                whole = torch.empty(value.shape, dtype=value.dtype, device=parameter.device)
                torch.distributed.recv(whole, source, group=group)
                found[parameter][key] = whole.cpu()
            else:
                found[parameter][key] = value
    return found


class _Sent:
    """A tensor that follows by itself."""

    def __init__(self, value: torch.Tensor) -> None:
        self.shape = tuple(value.shape)
        self.dtype = value.dtype


def _is_sent(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0


def _described(state: dict[str, Any]) -> dict[str, Any]:
    """What is small as it is, larger tensors by shape and type."""
    return {
        key: _Sent(value) if _is_sent(value) else value.cpu() if isinstance(value, torch.Tensor) else value
        for key, value in state.items()
    }
