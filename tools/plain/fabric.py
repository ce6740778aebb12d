"""The first step of one_process.py by Lightning Fabric: `fabric.py FOLDER`."""

import sys
import time

import torch
from lightning.fabric import Fabric
from tiny import BATCH, SEQUENCE, UPDATES, Samples, Tiny, loss_sum  # type: ignore[import-not-found]  # beside it

torch.set_num_threads(1)
fabric = Fabric(accelerator="cpu", devices=1)
fabric.launch()
torch.manual_seed(0)
module = Tiny()
optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
model, optimizer = fabric.setup(module, optimizer)
data = Samples()
losses, done = [], 0
for update in range(UPDATES):
    rows = torch.stack([data[update * BATCH + row] for row in range(BATCH)])
    total, _ = loss_sum(model, rows)
    fabric.backward(total / (BATCH * SEQUENCE))
    optimizer.step()
    optimizer.zero_grad()
    losses.append(total.item() / (BATCH * SEQUENCE))
    done = done or time.monotonic_ns()
with open(f"{sys.argv[1]}/rank-0.txt", "w") as file:
    print(done, *losses, file=file)
