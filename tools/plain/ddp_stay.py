"""One DDP rank that stays, `ddp_stay.py FOLDER`: a line an update in rank-N.start-K.txt with its process and the time.

K is how often the ranks were started again before; a rank is meant to be killed from outside.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from tiny import BATCH, SEQUENCE, UPDATES, Samples, Tiny, loss_sum  # type: ignore[import-not-found]  # beside it
from torch.nn.parallel import DistributedDataParallel

PAUSE = 0.02  # seconds between updates: the other ranks' starts are measured, not this rank's work

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(Tiny(), gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
data, share = Samples(), BATCH // size
starts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
update = 0
with open(f"{sys.argv[1]}/rank-{rank}.start-{starts}.txt", "w", buffering=1) as file:
    while True:
        first = update % UPDATES * BATCH + rank * share
        total, _ = loss_sum(model, torch.stack([data[first + row] for row in range(share)]))
        (total / (share * SEQUENCE)).backward()
        optimizer.step()
        optimizer.zero_grad()
        print(os.getpid(), time.monotonic_ns(), file=file)
        update += 1
        time.sleep(PAUSE)
