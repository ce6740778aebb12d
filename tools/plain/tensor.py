"""A hand-written first step of one tensor-parallel rank, `tensor.py FOLDER`, as torchrun or another starts it."""

import os
import sys
import time

import torch
import torch.distributed as dist
from tiny import BATCH, SEQUENCE, UPDATES, Samples, Tiny, loss_sum  # type: ignore[import-not-found]  # beside it
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))
torch.manual_seed(0)
model = Tiny()
for block in model.blocks:
    parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, foreach=False)
data = Samples()
losses, done = [], 0
for update in range(UPDATES):
    rows = torch.stack([data[update * BATCH + row] for row in range(BATCH)])
    total, _ = loss_sum(model, rows)
    (total / (BATCH * SEQUENCE)).backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(total.item() / (BATCH * SEQUENCE))
    done = done or time.monotonic_ns()
with open(f"{sys.argv[1]}/rank-{rank}.txt", "w") as file:
    print(done, *losses, file=file)
dist.barrier()
dist.destroy_process_group()
os._exit(0)
