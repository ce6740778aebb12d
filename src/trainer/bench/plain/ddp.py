"""A hand-written first step of one DDP rank, `ddp.py FOLDER`, as torchrun or another parent starts it."""

import os
import sys
import time

import torch
import torch.distributed as dist
from tiny import BATCH, SEQUENCE, UPDATES, Samples, Tiny, loss_sum  # type: ignore[import-not-found]  # beside it
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(Tiny(), gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
data, share = Samples(), BATCH // size
losses, done = [], 0
for update in range(UPDATES):
    first = update * BATCH + rank * share
    total, _ = loss_sum(model, torch.stack([data[first + row] for row in range(share)]))
    (total / (share * SEQUENCE)).backward()
    told = total.detach().double()
    dist.all_reduce(told)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(told.item() / (BATCH * SEQUENCE))
    done = done or time.monotonic_ns()
with open(f"{sys.argv[1]}/rank-{rank}.txt", "w") as file:
    print(done, *losses, file=file)
dist.barrier()
dist.destroy_process_group()
os._exit(0)
