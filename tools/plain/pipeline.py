"""A hand-written first step of one stage of a 1F1B pipeline, `pipeline.py FOLDER`, as torchrun or another starts it."""

import os
import sys
import time

import torch
import torch.distributed as dist
from tiny import BATCH, LAYERS, SEQUENCE, UPDATES, Samples, Tiny  # type: ignore[import-not-found]  # beside it
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

PARTS = 4  # micro-batches of an update


class Stage(nn.Module):
    """A rank's share of the model: of its blocks, and the embedding or the head where it is first or last."""

    def __init__(self, model: Tiny, rank: int, size: int) -> None:
        super().__init__()
        share = LAYERS // size
        self.blocks = model.blocks[rank * share : (rank + 1) * share]
        self.first, self.last = rank == 0, rank == size - 1
        if self.first:
            self.embedding, self.positions = model.embedding, model.positions
        if self.last:
            self.norm, self.head = model.norm, model.head

    def forward(self, hidden: Tensor) -> Tensor:
        if self.first:
            hidden = self.embedding(hidden) + self.positions.weight
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden)) if self.last else hidden


def loss_part(logits: Tensor, labels: Tensor) -> Tensor:
    """Of one micro-batch; a mean over the whole batch once all are added."""
    total = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    return total / (BATCH * SEQUENCE)  # type: ignore[no-any-return]


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = Stage(Tiny(), rank, size)
stage = PipelineStage(model, rank, size, torch.device("cpu"))
schedule = Schedule1F1B(stage, PARTS, loss_fn=loss_part, scale_grads=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
data = Samples()
losses, done = [], 0
for update in range(UPDATES):
    rows = torch.stack([data[update * BATCH + row] for row in range(BATCH)])
    parts: list[Tensor] = []
    if model.first:
        schedule.step(rows[:, :-1])
    elif model.last:
        schedule.step(target=rows[:, 1:], losses=parts)
    else:
        schedule.step()
    told = torch.stack(parts).detach().double().sum() if parts else torch.zeros((), dtype=torch.float64)
    dist.all_reduce(told)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(told.item())
    done = done or time.monotonic_ns()
with open(f"{sys.argv[1]}/rank-{rank}.txt", "w") as file:
    print(done, *losses, file=file)
dist.barrier()
dist.destroy_process_group()
os._exit(0)
