"""A forward through all stages, without gradients: what evaluation and generation need."""

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.parallel.pipeline_calls import Call
from trainer.parallel.pipeline_shapes import Form, Shapes
from trainer.parallel.pipeline_stage import NOTHING, StageModule

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

AHEAD = 4  # sends that may wait for their receiver: a first stage goes on with the next batch meanwhile


class Relay:
    """Runs this rank's stages in their order. `owners`: the rank of each stage. The context of a forward is the
    caller's."""

    def __init__(
        self,
        modules: Mapping[int, StageModule],
        owners: Mapping[int, int],
        group: "ProcessGroup",
        device: torch.device,
        shapes: Shapes,
    ) -> None:
        self.modules = modules
        self.owners = owners
        self.group = group
        self.device = device
        self.shapes = shapes
        self._sent: deque[tuple[Any, Tensor]] = deque()

    def __call__(self, call: Call) -> Any:
        """What the model returns where this rank has the last stage, else None. Collective over the pipeline."""
        with torch.no_grad():
            forms = self.shapes(call, NOTHING)
            output: Any = None
            for index, module in self.modules.items():
                module.calls, module.autocast, module.leaving = [call], NOTHING, forms[index : index + 1]
                hidden = () if index == 0 else (self._from(index - 1, output, forms[index - 1]),)
                output = module(*hidden, number=0)
                module.calls = ()
                if index + 1 < len(self.owners):
                    self._to(index + 1, output)
            return output if len(self.owners) - 1 in self.modules else None

    def everywhere(self, call: Call) -> Tensor:
        """What the model returns, on every rank of the pipeline."""
        output = self(call)
        last = self.owners[len(self.owners) - 1]
        form: list[Any] = [(tuple(output.shape), output.dtype) if output is not None else None]
        dist.broadcast_object_list(form, group=self.group, group_src=last, device=self.device)
        shape, dtype = form[0]
        found: Tensor = (
            output.contiguous() if output is not None else torch.empty(shape, dtype=dtype, device=self.device)
        )
        dist.broadcast(found, group=self.group, group_src=last)
        return found

    def _from(self, stage: int, local: Any, form: Form) -> Any:
        if stage in self.modules:
            return local
        shape, dtype = form
        received = torch.empty(shape, dtype=dtype, device=self.device)
        work = dist.irecv(received, group=self.group, group_src=self.owners[stage])
        if work is not None:
            work.wait()
        return received

    def _to(self, stage: int, output: Tensor) -> None:
        if stage in self.modules:
            return
        self._sent.append((dist.isend(output, group=self.group, group_dst=self.owners[stage]), output))
        while len(self._sent) > AHEAD:
            work, _ = self._sent.popleft()
            if work is not None:
                work.wait()
