"""Gradients of which each rank holds parts, as one vector."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from tests.beds.ranks import on_ranks
from trainer.parallel.gradients import add_up, own_parts, squares

CPU = torch.device("cpu")


def gradients() -> list[Tensor]:
    """The last has fewer rows than there are ranks."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((6, 4), (5,), (3, 2), (1, 3))]


def total_norm(gradients: list[Tensor], count: int) -> float:
    found = squares(gradients, count, CPU)
    torch.distributed.all_reduce(found)
    return math.sqrt(found)


def norms(rank: int, count: int) -> list[float]:
    whole, plain, replicated, short = gradients()
    two = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shard", "tensor"))
    tensor = two["tensor"]
    cut = [
        distribute_tensor(whole, two, [Shard(1), Shard(0)]),
        plain,  # a plain tensor beside sharded ones, on all ranks alike
        distribute_tensor(replicated, two, [Shard(0), Replicate()]),
        distribute_tensor(short, tensor, [Shard(0)]),
    ]
    before = total_norm(cut, count)
    torch._foreach_mul_(own_parts(cut), 0.5)
    after = total_norm(cut, count)
    if rank == 1:
        own_parts(cut)[0][0, 0] = math.inf  # an overflow that one rank alone could see
    return [before, after, total_norm([], count), total_norm(cut, count)]


def test_what_several_ranks_hold_alike_counts_once() -> None:
    expected = float(torch.cat([each.flatten() for each in gradients()]).norm())
    for found in on_ranks(4, norms):
        assert found == pytest.approx([expected, expected / 2, 0.0, math.inf], rel=1e-14)


def summands(rank: int, count: int) -> list[float]:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tensor",))
    parameters: list[Tensor] = []
    for size in (2, 3):
        parameter = nn.Parameter(DTensor.from_local(torch.zeros(size), mesh, [Replicate()]))
        parameter.grad = DTensor.from_local(torch.full((size,), float(rank + size)), mesh, [Partial()])
        parameters.append(parameter)
    plain = nn.Parameter(torch.zeros(1))
    plain.grad = torch.ones(1)
    parameters.append(plain)
    add_up(parameters)
    add_up(parameters)
    found = []
    for each in parameters:
        assert each.grad is not None
        found.extend(own_parts([each.grad])[0].tolist())
    return found


def test_summands_are_added_up_once() -> None:
    assert on_ranks(2, summands) == [[5.0] * 2 + [7.0] * 3 + [1.0]] * 2
