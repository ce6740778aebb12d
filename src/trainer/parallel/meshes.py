"""The ranks of a layout as a DeviceMesh."""

from typing import TYPE_CHECKING

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

if TYPE_CHECKING:
    from trainer.mesh import Layout


def device_mesh(layout: "Layout", device: torch.device) -> DeviceMesh:
    """One dimension for each degree above 1, under its name, the outermost first; `shard` is always there.

    Collective over all ranks. `mesh["tensor"]`, `mesh["replicate", "shard"]` are parts of it.
    """
    shape = {name: size for name, size in layout.shape().items() if size > 1 or name == "shard"}
    return init_device_mesh(device.type, tuple(shape.values()), mesh_dim_names=tuple(shape))


def part(mesh: DeviceMesh, *names: str) -> DeviceMesh | None:
    """The dimensions of `mesh` among `names`; None where all of them have one rank."""
    found = tuple(name for name in names if name in (mesh.mesh_dim_names or ()))
    return mesh[found] if found else None
