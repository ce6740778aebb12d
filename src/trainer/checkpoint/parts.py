"""Tensors of which each rank holds a part, whole in a checkpoint: that is the same for every layout."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_part(value: object) -> bool:
    """Is this what one rank has of a sharded tensor? Does not import what could only make one."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def gathered(state: Mapping[str, Any], keep: bool) -> dict[str, Any]:
    """The state with every tensor whole and what was sharded on the host; collective where there is such, in the
    order of the keys. One tensor at a time is whole on the device. Without `keep`: empty."""
    found: dict[str, Any] = {}
    for name, value in state.items():
        if is_part(value):
            gathered_value = whole(value)
            value = gathered_value.cpu() if keep else None
            del gathered_value
        if keep:
            found[name] = value
    return found


def whole(part: "DTensor") -> torch.Tensor:
    """All of a sharded tensor, on every rank, along one dimension of the mesh after the other; torch, asked for all at
    once, does so too, with a warning. What was cut last comes first: what sharded a part (strided), then the innermost.
    """
    from torch.distributed.tensor import Replicate

    order = sorted(range(part.device_mesh.ndim), key=lambda d: (not hasattr(part.placements[d], "split_factor"), -d))
    for dimension in order:
        placements = list(part.placements)
        placements[dimension] = Replicate()
        part = part.redistribute(placements=placements)
    return part.to_local()


def own_part(whole: torch.Tensor, example: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy of what this rank holds of `whole` on `device`, where `example` says how it is laid out."""
    if is_part(example):
        return part_like(whole, example, device)  # type: ignore[arg-type]  # a DTensor
    return whole.to(device, copy=True, memory_format=torch.preserve_format)


def part_like(whole: torch.Tensor, example: "DTensor", device: torch.device | None = None) -> "DTensor":
    """What this rank holds of `whole`, which all ranks have, laid out as `example` is, on its device unless another is
    given. Sends nothing."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    assert whole.shape == example.shape, (whole.shape, example.shape)
    mesh = example.device_mesh
    shape, offset = compute_local_shape_and_global_offset(whole.shape, mesh, example.placements)
    own = whole[tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))]
    own = own.to(device or example.device).clone(memory_format=torch.contiguous_format)
    return DTensor.from_local(
        own, mesh, example.placements, run_check=False, shape=whole.shape, stride=example.stride()
    )
