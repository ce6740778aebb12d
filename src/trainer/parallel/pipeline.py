"""Pipeline parallelism: a rank has some of the model's stages; micro-batches go from stage to stage."""

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed import pipelining
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle

from trainer.backward import Context, Loss
from trainer.errors import UserError
from trainer.models.plan import Pieces, plan_of
from trainer.parallel.pipeline_calls import Calls
from trainer.parallel.pipeline_cut import Cut, keep_only
from trainer.parallel.pipeline_relay import Relay
from trainer.parallel.pipeline_shapes import Shapes
from trainer.parallel.pipeline_shared import Shared, sum_in_buckets
from trainer.parallel.pipeline_stage import Stage, StageModule
from trainer.schedules import SPLIT_BACKWARD, next_allowed, stages_of, stages_per_rank

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

SINGLE: dict[str, Any] = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}
SEVERAL: dict[str, Any] = {
    "interleaved": pipelining.ScheduleInterleaved1F1B,
    "zero_bubble": pipelining.ScheduleInterleavedZeroBubble,
    "zbv": pipelining.ScheduleZBVZeroBubble,
    "dualpipev": pipelining.ScheduleDualPipeV,
}


class Pipeline:
    """The stages of one rank: forward and backward of an update (`__call__`, see backward.Backward), the loss without
    gradients (`evaluate`), and `model(...)` as if it were whole, which is collective over the pipeline.

    `modules`: this rank's stages, by number. `last`: whether the last one is among them, which gives the loss;
    `counts`: and no rank that sees the same samples counts it.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        group: "ProcessGroup",
        device: torch.device,
        *,
        schedule: str,
        virtual: int = 0,
        cut: Sequence[int] = (),
        counts: bool = True,
    ) -> None:
        self.model = model
        self.group = group
        self.device = device
        self.schedule = schedule
        self.ranks = group.size()
        self.rank = group.rank()
        virtual = stages_per_rank(schedule, virtual)
        self.stages = self.ranks * virtual
        of_ranks = [stages_of(rank, self.ranks, schedule, virtual) for rank in range(self.ranks)]
        plan = plan_of(model)
        Pieces(model, plan)  # what is wrong with the plan is told of the whole model
        self.cut = Cut(model, plan, self.stages, cut)
        self.shapes = Shapes(model, plan, self.cut.blocks)
        self.shared = Shared(model, self.cut.holders(model, of_ranks), group)
        self._unshardable = _unshardable(model, self.cut, of_ranks)
        keep_only(model, self.cut, of_ranks[self.rank])
        pieces = Pieces(model, plan)
        self.modules = {index: self._stage_module(index, pieces) for index in of_ranks[self.rank]}
        self.last = self.stages - 1 in self.modules
        self.counts = self.last and counts
        owners = {stage: rank for rank, own in enumerate(of_ranks) for stage in own}
        self.relay = Relay(self.modules, owners, group, device, self.shapes)
        self.calls = Calls(model, loss, self.relay.everywhere)
        self.copies: ProcessGroup | None = None
        self.bucket_mb = 25
        self.idle: Callable[[], Context] = contextlib.nullcontext  # around micro-batches that count nothing
        self._stages: list[Stage] = []
        self._made: dict[int, PipelineScheduleSingle | PipelineScheduleMulti] = {}
        self._batches: Sequence[tuple[Any, int]] = ()
        self._weight = 0.0
        self._sums: list[tuple[Tensor, Tensor]] = []

    def _stage_module(self, index: int, pieces: Pieces) -> StageModule:
        made = StageModule(self.model, self.cut.modules(index), sorted(self.cut.loose), pieces)
        made.blocks = self.cut.blocks[index]
        made.units = [
            pieces.blocks[block] for block in made.blocks if any(True for _ in pieces.blocks[block].parameters())
        ]
        made.first, made.last = index == 0, index == self.stages - 1
        return made

    def check_shardable(self, reshard: bool) -> None:
        """UserError (status 2) where a stage cannot be sharded by itself, or not with weights that are given up between
        uses (`reshard`); alike on all ranks."""
        assert not (reshard and self.schedule in SPLIT_BACKWARD), "plan_layout refuses it: gradients would be wrong"
        if self._unshardable:
            raise UserError(
                f"{self._unshardable}, so each stage cannot be sharded by itself",
                "Set parallel.strategy to ddp, or parallel.schedule to 1f1b.",
                2,
            )

    def average_over(self, copies: "ProcessGroup", bucket_mb: int) -> None:
        """Gradients are averaged over the ranks that have the same stages and see other samples, once an update: what
        DDP does within backward, it cannot where a schedule parts the gradients of weights from those of inputs."""
        self.copies = copies
        self.bucket_mb = bucket_mb

    def __call__(
        self, micro_batches: Sequence[tuple[Any, int]], weight: float, autocast: Context
    ) -> list[tuple[Tensor, Tensor]]:
        batches = list(micro_batches)
        # what is left over of an epoch may be fewer than the schedule can run
        batches += [(batches[0][0], 0)] * (next_allowed(self.schedule, self.ranks, len(batches)) - len(batches))
        calls = [self.calls.of(batch) for batch, _ in batches]
        forms = [self.shapes(call, autocast) for call in calls]
        schedule = self._schedule(len(batches))
        for stage, module in zip(self._stages, self.modules.values(), strict=True):
            index = stage.stage_index
            module.calls, module.autocast = calls, autocast
            module.around = [contextlib.nullcontext if real else self.idle for _, real in batches]
            module.leaving = [] if stage.is_last else [form[index] for form in forms]
            stage.expect([] if stage.is_first else [form[index - 1] for form in forms], module.leaving)
        self._batches, self._sums = batches, []
        self._weight = weight / self.copies.size() if self.copies else weight
        self._autocast = autocast
        numbers = list(range(len(batches)))
        schedule.step(
            kwarg_mbs=[{"number": number} for number in numbers],
            target_mbs=numbers if self.last else None,
            return_outputs=False,
        )
        for module in self.modules.values():
            module.calls, module.around = (), ()
        sums, self._batches, self._sums = self._sums, (), []
        if self.copies:
            sum_in_buckets([p.grad for p in self.model.parameters() if p.grad is not None], self.copies, self.bucket_mb)
        self.shared.sum()
        return sums

    def _loss(self, output: Any, number: int) -> Tensor:
        """What the last stage's backward begins with: the loss itself, weighted, as nothing is scaled afterwards."""
        batch, real = self._batches[number]
        with self._autocast:
            total, count = self.calls.loss_of(output, batch)
        if real and self.counts:
            self._sums.append((total.detach(), count))
        return total * (self._weight if real else 0.0)

    def _schedule(self, micro_batches: int) -> PipelineScheduleSingle | PipelineScheduleMulti:
        """Torch's schedule for so many micro-batches. The gradients stay sums: it is the loss that is divided."""
        made = self._made.get(micro_batches)
        if made is None:
            # made late: the modules may have been sharded since
            self._stages = self._stages or [
                Stage(module, index, self.stages, self.device, self.group) for index, module in self.modules.items()
            ]
            if self.schedule in SINGLE:
                made = SINGLE[self.schedule](self._stages[0], micro_batches, self._loss, scale_grads=False)
            else:
                made = SEVERAL[self.schedule](list(self._stages), micro_batches, self._loss, scale_grads=False)
            self._made[micro_batches] = made
        return made

    def evaluate(self, batch: Any) -> tuple[Tensor, Tensor]:
        """(sum, count) of the loss where this rank has the last stage, else zeros. Collective over the pipeline."""
        output = self.relay(self.calls.of(batch))
        if not self.last:
            zero = torch.zeros((), device=self.device)
            return zero, zero
        return self.calls.loss_of(output, batch)


def _unshardable(model: nn.Module, cut: Cut, of_ranks: Sequence[Sequence[int]]) -> str:
    """Why stages cannot be sharded: weights that are no stage's own; or ""."""
    if cut.loose:
        return f"{min(cut.loose)} is a parameter beside the model's modules"
    for own in of_ranks:
        seen: dict[nn.Parameter, int] = {}
        for stage in own:
            for name in cut.modules(stage):
                for inner, parameter in model.get_submodule(name).named_parameters():
                    if seen.setdefault(parameter, stage) != stage:
                        return f"{name}.{inner} is used by stages {seen[parameter]} and {stage} of one rank"
    return ""
