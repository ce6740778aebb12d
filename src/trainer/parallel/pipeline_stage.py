"""One stage of a model: what torch's schedules run."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._backward import stage_backward_weight
from torch.distributed.pipelining._utils import _TensorMeta

from trainer.models.plan import Pieces
from trainer.parallel.pipeline_calls import Call
from trainer.parallel.pipeline_shapes import Form

NOTHING = contextlib.nullcontext()
GIVE_WAY = 2e-5  # seconds; the kernel makes about 70 microseconds of it


class StageModule(nn.Module):
    """A part of the model's forward, as a module of the model's own modules: forward(hidden, number of micro-batch).

    `calls` and `autocast` are set for each update: what the model is called with for each micro-batch, which every rank
    knows, since all load the same samples; and the context of one forward. `around`: another context for each of these.
    `leaving`: form of what each gives. `units`: its blocks that have weights.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], loose: Sequence[str], pieces: Pieces) -> None:
        super().__init__()
        for name in names:
            self.add_module(name.replace(".", "__"), model.get_submodule(name))
        for name in loose:
            self.register_parameter(name.replace(".", "__"), model.get_parameter(name))
        self._run = pieces.run
        self.calls: Sequence[Call] = ()
        self.autocast: contextlib.AbstractContextManager[Any] = NOTHING
        self.around: Sequence[Callable[[], contextlib.AbstractContextManager[Any]]] = ()
        self.leaving: Sequence[Form] = ()
        self.blocks = range(0)
        self.units: list[nn.Module] = []
        self.first = self.last = False

    def forward(self, *hidden: Tensor, number: int) -> Any:
        """Of the first stage without `hidden`, of the last what the model returns."""
        call = self.calls[number]
        with self.autocast, self.around[number]() if self.around else NOTHING:
            found = self._run(None if self.first else hidden[0], self.blocks, call.args, call.kwargs, self.last)
        # what is gathered in half precision gives so too, and the next stage has been told otherwise
        return found if self.last else found.to(self.leaving[number][1]).contiguous()


class Stage(PipelineStage):
    """A stage whose micro-batches may differ in shape: the last of an epoch is shorter, texts are not equally long."""

    def __init__(
        self, module: StageModule, index: int, stages: int, device: torch.device, group: torch.distributed.ProcessGroup
    ) -> None:
        self.entering: Sequence[Form] = ()
        self.leaving: Sequence[Form] = ()
        # forms to begin with, so that torch does not run the stage to infer them; see `expect`
        some = torch.empty(1, device="meta", requires_grad=True)
        entering = (some,) if index else ()
        super().__init__(module, index, stages, device, input_args=entering, output_args=(some,), group=group)

    def expect(self, entering: Sequence[Form], leaving: Sequence[Form]) -> None:
        """Forms of what the next update's micro-batches bring and give; empty before the first and after the last."""
        self.chunks = max(len(entering), len(leaving))  # another schedule may have had fewer
        if (entering, leaving) == (self.entering, self.leaving):
            return
        self.entering, self.leaving = entering, leaving
        self._fill(self.args_recv_info, entering, True)
        self._fill(self.grad_recv_info, leaving, False)

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> tuple[Any, Any]:
        """As torch's, but the backward for weights keeps the graph until it is through (a weight that a stage uses
        twice is reached by way of nodes that others need after it), and gradients can be added to (a sum's is one
        number spread out)."""
        if backward_type != "weight":
            found: tuple[Any, Any] = super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
            return found
        if isinstance(self.submod, FSDPModule):
            self.submod.set_reshard_after_backward(False)
            self.submod.set_requires_gradient_sync(False)
        stage_backward_weight(self.submod.parameters(), bwd_kwargs["param_groups"], retain_graph=True)
        for parameter in self.submod.parameters():
            if parameter.grad is not None and not parameter.grad.is_contiguous():
                parameter.grad = parameter.grad.contiguous()
        return (), None

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[Any]:
        """As torch's, but of gradients as they are sent: a sum's is one number spread out. And a moment later on CPU,
        where two ranks that send to each other at once keep gloo's threads from the cores for milliseconds."""
        if self.has_backward and not self.is_first:
            if self.device.type == "cpu":
                time.sleep(GIVE_WAY)
            found = self.bwd_cache[bwd_chunk_id]
            self.bwd_cache[bwd_chunk_id] = tuple(each if each is None else each.contiguous() for each in found)
        sends: list[Any] = super().get_bwd_send_ops(bwd_chunk_id)
        return sends

    def _setup_forward_recv_info(self, num_microbatches: int, has_backward: bool) -> None:
        super()._setup_forward_recv_info(num_microbatches, has_backward)
        self._fill(self.args_recv_info, self.entering, True)

    def _setup_backward_recv_info(self, num_microbatches: int) -> None:
        super()._setup_backward_recv_info(num_microbatches)
        self._fill(self.grad_recv_info, self.leaving, False)

    @staticmethod
    def _fill(infos: dict[int, Any], forms: Sequence[Form], differentiable: bool) -> None:
        for info, (shape, dtype) in zip(infos.values(), forms, strict=False):
            strides = torch.empty(shape, device="meta").stride()
            info[0].tensor_meta = _TensorMeta(torch.Size(shape), strides, dtype, differentiable)
