"""The ranks of a layout as a DeviceMesh."""

from typing import TYPE_CHECKING

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from trainer.mesh import Layout


def device_mesh(layout: "Layout", device: torch.device, *, copies: bool = False) -> DeviceMesh:
    """One dimension for each degree above 1, under its name, the outermost first; `shard` where there is none. Ranks
    that have parts of the same sequences count as ranks that share a model or, with `copies`, that copy it. A single
    dimension is the group that is there already.

    Collective over all ranks. `mesh["tensor"]`, `mesh["replicate", "shard"]` are parts of it.
    """
    sizes = layout.shape()
    folded = sizes.pop("context")
    if folded > 1:
        assert not copies or layout.shard == 1, "copies of shards are no neighbours of their context ranks"
        sizes["replicate" if copies else "shard"] *= folded
    shape = {name: size for name, size in sizes.items() if size > 1} or {"shard": 1}
    return init_device_mesh(device.type, tuple(shape.values()), mesh_dim_names=tuple(shape))


def context_mesh(layout: "Layout", device: torch.device) -> DeviceMesh:
    """The ranks that share this one's sequences. Collective over all ranks."""
    outer = layout.pipeline * layout.data_ranks
    shape = (outer, layout.context, layout.tensor)
    return init_device_mesh(device.type, shape, mesh_dim_names=("outer", "context", "inner"))["context"]


def part(mesh: DeviceMesh, *names: str) -> DeviceMesh | None:
    """The dimensions of `mesh` among `names`; None where all of them have one rank."""
    found = tuple(name for name in names if name in (mesh.mesh_dim_names or ()))
    return mesh[found] if found else None


def data_group(mesh: DeviceMesh) -> "ProcessGroup | None":
    """The ranks that have the same part of the model and see other samples; None where there are no others.
    Collective."""
    data = part(mesh, "replicate", "shard")
    if data is None or data.size() == 1:
        return None
    return data.get_group() if data.ndim == 1 else data._flatten("data").get_group()
