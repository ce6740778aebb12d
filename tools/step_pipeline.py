"""A hand-written loop over torch's own pipeline, for tools/bench_step.py: two stages, 1F1B."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

from tools.step_work import Block, Work


class Half(nn.Module):
    """The first or the second half of a model: ids -> hidden, or hidden -> logits."""

    def __init__(self, model: Any, first: bool) -> None:
        super().__init__()
        own = hasattr(model, "layers")
        blocks = list(model.layers if own else model.blocks)
        middle = len(blocks) - len(blocks) // 2
        self.blocks = nn.ModuleList(blocks[:middle] if first else blocks[middle:])
        self.first = model.embedding if first else None
        self.last = None if first else model.output if own else nn.Sequential(model.norm, model.output)
        self.rotary = None if own else model.rotary  # no module

    def forward(self, x: Tensor) -> Tensor:
        if self.first is not None:
            x = self.first(x)
        rotations = () if self.rotary is None else (self.rotary.table(0, x.shape[1], x.device, x.dtype),)
        for block in self.blocks:
            x = block(x, *rotations)
        return x if self.last is None else self.last(x)


def piped(work: Work) -> Block:
    """What an engineer writes on torch.distributed.pipelining."""
    part = Half(work.model(), work.rank == 0)
    stage = PipelineStage(part, work.rank, work.ranks, torch.device("cpu"))
    run = Schedule1F1B(stage, work.micro_batches, loss_fn=_loss)
    optimizer = work.optimizer(part)
    schedule = work.schedule(optimizer)
    parameters = list(part.parameters())
    update = 0

    def block(count: int) -> float:
        nonlocal update
        value = 0.0
        for _ in range(count):
            tokens, labels = work.fetch(update)
            losses: list[Tensor] = []
            if work.rank == 0:
                run.step(tokens)
            else:
                run.step(target=labels, losses=losses)
            gradients = [each.grad for each in parameters if each.grad is not None]
            # the norm of all stages and the loss, which the last one knows
            told = torch.stack((torch.nn.utils.get_total_norm(gradients).square(), torch.zeros(())))
            if losses:
                told[1] = torch.stack(losses).mean()
            torch.distributed.all_reduce(told)
            torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, told[0].sqrt())
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            value = told[1].item()
            update += 1
        return value

    return block


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
