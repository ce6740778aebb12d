"""What this rank holds of tensors: all of plain ones, its part of DTensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def is_cut(tensor: object) -> bool:
    """Is this a DTensor? Does not import what could only make one."""
    return hasattr(tensor, "placements")


def local(tensor: Tensor) -> Tensor:
    """This rank's part; changing it changes the tensor."""
    cut: Any = tensor
    own: Tensor = cut.to_local() if is_cut(tensor) else tensor
    return own.detach()


def locals_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """This rank's part of each."""
    return [local(each) for each in tensors]


def with_gradient(group: dict[str, Any]) -> list[Tensor]:
    """The parameters of a group that are updated now."""
    return [parameter for parameter in group["params"] if parameter.grad is not None]
