"""A loop of your own on one process or many: `python own_loop.py`, `torchrun --nproc-per-node 2 own_loop.py`."""

import os

import torch

import trainer

rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if ranks > 1:
    torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
data, target = torch.randn(64, 16), torch.randn(64, 1)


def loss(model: torch.nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (model(data[batch]) - target[batch]).square().sum(), torch.tensor(len(batch))  # sum, count


device, layout = torch.device("cpu"), trainer.Layout(shard=ranks)
cut = trainer.parallelize(model, loss, layout, trainer.Parallel(strategy="full"), device)
optimizers = trainer.build_optimizer(model, trainer.Optim(lr=0.01), device)
train_step = trainer.Step(cut, optimizers, trainer.make_policy(trainer.Precision(), "fp32", device), device, clip=1.0)
for update in range(10):
    mine = torch.arange(64)[layout.data_index(rank) :: layout.data_ranks]
    outcome = train_step([(part, len(part)) for part in mine.chunk(2)], 64.0, 1.0, False)
    if rank == 0:
        print(f"update {update + 1}: loss {outcome.loss:.6f}, gradient norm {outcome.grad_norm:.6f}", flush=True)
