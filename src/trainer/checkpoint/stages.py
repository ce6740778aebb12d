"""The state of a model that is cut into pipeline stages, together on one rank: a checkpoint is the same for every
layout."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class _Form:
    """In the place of a tensor that follows by itself."""

    def __init__(self, shape: torch.Size, dtype: torch.dtype) -> None:
        self.shape = shape
        self.dtype = dtype


def keeps(write: bool, stages: "ProcessGroup | None") -> bool:
    """Whether this rank's part of the state is needed; `write`: whether this rank is the one that writes. Only the
    ranks of the pipeline of rank 0 are asked, others have the same."""
    if stages is None:
        return write
    return torch.distributed.get_process_group_ranks(stages)[0] == 0


def joined(state: Mapping[str, Any], stages: "ProcessGroup | None") -> dict[str, Any]:
    """The state of all stages, by name, on the first rank; empty on others. A name that several have counts once.

    Collective over `stages`. Tensors go one at a time, to the host.
    """
    if stages is None:
        return dict(state)
    if stages.rank():
        _send(state, stages)
        return {}
    found = dict(state)
    for other in range(1, stages.size()):
        for name, value in _receive(other, stages).items():
            found.setdefault(name, value)
    return found


def _device(stages: "ProcessGroup") -> torch.device:
    """Where messages have to lie."""
    nccl = torch.distributed.get_backend(stages) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")


def _send(state: Mapping[str, Any], stages: "ProcessGroup") -> None:
    from torch.utils._pytree import tree_flatten, tree_unflatten

    device = _device(stages)
    leaves, spec = tree_flatten(dict(state))
    told = [_Form(each.shape, each.dtype) if isinstance(each, torch.Tensor) else each for each in leaves]
    torch.distributed.send_object_list([tree_unflatten(told, spec)], group=stages, group_dst=0, device=device)
    for each in leaves:
        if isinstance(each, torch.Tensor) and each.numel():
            torch.distributed.send(each.detach().to(device).contiguous(), group=stages, group_dst=0)


def _receive(other: int, stages: "ProcessGroup") -> dict[str, Any]:
    from torch.utils._pytree import tree_flatten, tree_unflatten

    device = _device(stages)
    told: list[Any] = [None]
    torch.distributed.recv_object_list(told, group=stages, group_src=other, device=device)
    leaves, spec = tree_flatten(told[0])
    for index, each in enumerate(leaves):
        if isinstance(each, _Form):
            value = torch.empty(each.shape, dtype=each.dtype, device=device)
            if value.numel():
                torch.distributed.recv(value, group=stages, group_src=other)
            leaves[index] = value.cpu()
    found: dict[str, Any] = tree_unflatten(leaves, spec)
    return found
