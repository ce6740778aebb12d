"""torch.compile, a block at a time: blocks that are alike are compiled once, and hooks stay outside."""

import copy
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from trainer.errors import UserError


class Compiled:
    """A block's forward: compiled while gradients are asked for, as it is written elsewhere: evaluation and generation
    come with other shapes at every call, each of which would be compiled."""

    def __init__(self, forward: Callable[..., Any], budget: float | None, backend: str) -> None:
        self.forward = forward
        self.budget = budget
        self.backend = backend
        self.compiled = torch.compile(forward, backend=backend)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.forward(*arguments, **options)
        if self.budget is None:
            return self.compiled(*arguments, **options)
        with torch._functorch.config.patch(activation_memory_budget=self.budget):
            return self.compiled(*arguments, **options)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Compiled":
        return Compiled(copy.deepcopy(self.forward, memo), self.budget, self.backend)


def apply_compile(
    blocks: Sequence[nn.Module], device: torch.device, budget: float | None = None, backend: str = "inductor"
) -> None:
    """Changes the forwards of `blocks` in place; their names stay. Recomputation comes before, so that the compiler
    sees it and may merge what is made again with backward. `budget`: share of what it would keep by itself that it may.

    On CPU everything is compiled in this process: a pool of compilers to each rank would outnumber the cores.
    """
    if not blocks:
        raise UserError(
            "nothing can be compiled: the model has no list of modules, and no plan() that names its blocks",
            "Define plan() in the model to return a trainer.Plan, or remove model.compile.",
            2,
        )
    if device.type == "cpu" and backend == "inductor":
        _need_compiler()
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1
    for block in blocks:
        block.__dict__["forward"] = Compiled(block.forward, budget, backend)


def _need_compiler() -> None:
    import torch._inductor.config

    candidates = torch._inductor.config.cpp.cxx
    names = [each for each in (candidates if isinstance(candidates, tuple | list) else [candidates]) if each]
    if not any(shutil.which(name) for name in names):
        raise UserError(
            "model.compile on CPU needs a C++ compiler, and none is on PATH",
            "Install g++, set CXX to a compiler, or remove model.compile.",
            2,
        )
