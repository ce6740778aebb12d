"""What goes from stage to stage, known before any of it is computed: one more forward to find out would draw random
numbers and count batches twice."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainer.errors import UserError
from trainer.models.plan import Pieces, Plan
from trainer.parallel.pipeline_calls import Call
from trainer.user_code import describe

# shape and type of one tensor
Form = tuple[tuple[int, ...], torch.dtype]


class Shapes:
    """The form of what enters each stage but the first, for a call of the model; of calls that are alike it is found
    once. Made while the model is whole."""

    def __init__(self, model: nn.Module, plan: Plan, blocks: Sequence[range]) -> None:
        self._known: dict[tuple[Any, ...], list[Form]] = {}
        self._hidden: Callable[..., Form] | None = getattr(model, plan.hidden) if plan.hidden else None
        self._blocks = blocks
        self._twin = None if plan.hidden else _Twin(model, plan)

    def __call__(self, call: Call, autocast: contextlib.AbstractContextManager[Any]) -> list[Form]:
        signature = call.signature()
        found = self._known.get(signature)
        if found is None:
            if self._hidden is not None:
                found = [self._hidden(*call.args, **call.kwargs)] * (len(self._blocks) - 1)
            else:
                assert self._twin is not None
                found = self._twin.run(call, self._blocks, autocast)
            self._known[signature] = found
        return found


class _Twin:
    """A copy of the model whose tensors have shapes and types but no content, and which draws no random numbers."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        from copy import deepcopy

        from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        with FakeCopyMode(self.mode):
            self.pieces = Pieces(deepcopy(model), plan)

    def run(self, call: Call, blocks: Sequence[range], autocast: contextlib.AbstractContextManager[Any]) -> list[Form]:
        """Form of what leaves each stage but the last."""
        from torch.utils._pytree import tree_map

        def fake(value: Any) -> Any:
            return self.mode.from_tensor(value) if isinstance(value, Tensor) else value

        found: list[Form] = []
        hidden: Any = None
        try:
            with torch.random.fork_rng(devices=[]), self.mode, torch.no_grad(), autocast:
                args, kwargs = tree_map(fake, (call.args, call.kwargs))
                for own in blocks[:-1]:
                    hidden = self.pieces.run(hidden, own, args, kwargs, last=False)
                    if not isinstance(hidden, Tensor):
                        break
                    found.append((tuple(hidden.shape), hidden.dtype))
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"the shape that pipeline stages exchange cannot be determined: {describe(error)}",
                "Name a method `hidden` in plan() of the model that returns its shape and dtype.",
                2,
            ) from error
        if not isinstance(hidden, Tensor):
            raise UserError(
                f"a block of the model returns {type(hidden).__name__}, but stages exchange one tensor",
                "Split the model between blocks that take and return one tensor.",
                2,
            )
        return found
