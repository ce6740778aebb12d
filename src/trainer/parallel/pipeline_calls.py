"""Between a loss and a model of which no rank has all: what the loss calls the model with, and what it would get."""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from trainer.backward import Loss
from trainer.errors import UserError


class Call:
    """What the model is called with for one micro-batch, by a loss that calls it once."""

    __slots__ = ("args", "kwargs")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs

    def signature(self) -> tuple[Any, ...]:
        """Alike for calls with tensors of the same shapes and types."""
        from torch.utils._pytree import tree_leaves

        leaves = tree_leaves((self.args, self.kwargs))
        return tuple((each.shape, each.dtype) if isinstance(each, Tensor) else type(each) for each in leaves)


class _Called(BaseException):
    """Leaves a loss where it calls the model; no error, and nothing that a loss catches."""

    def __init__(self, call: Call) -> None:
        self.call = call


class Calls:
    """Answers in place of `model.forward`, so that any loss(model, batch) can be used, the model's own method too.
    `whole(call)`: the output of the whole pipeline, for those who call the model outside of a loss; where the model has
    a method padded(run, ...), it is run by that."""

    def __init__(self, model: nn.Module, loss: Loss, whole: Callable[[Call], Tensor]) -> None:
        self.model = model
        self.loss = loss
        padded = getattr(model, "padded", None)

        def run(*args: Any, **kwargs: Any) -> Tensor:
            return whole(Call(args, kwargs))

        def answer(call: Call) -> Any:
            return padded(run, *call.args, **call.kwargs) if callable(padded) else whole(call)

        self._whole = answer
        self._answer: Callable[[Call], Any] = answer
        own: Any = model
        own.forward = lambda *args, **kwargs: self._answer(Call(args, kwargs))

    def of(self, batch: Any) -> Call:
        """What the loss calls the model with. Computes what the loss does before that, without gradients."""
        self._answer = _leave
        try:
            with torch.no_grad():
                self.loss(self.model, batch)
        except _Called as called:
            return called.call
        finally:
            self._answer = self._whole
        raise UserError(
            "the loss did not call the model, so the pipeline has nothing to run",
            "Call model(...) once in loss(model, batch).",
            2,
        )

    def loss_of(self, output: Any, batch: Any) -> tuple[Tensor, Tensor]:
        """(sum, count) of the loss where the model returns `output`."""
        given = [output]

        def answer(call: Call) -> Any:
            if not given:
                raise UserError(
                    "the loss calls the model more than once", "Call the model once, or set parallel.pipeline to 1.", 2
                )
            return given.pop()

        self._answer = answer
        try:
            return self.loss(self.model, batch)
        finally:
            self._answer = self._whole


def _leave(call: Call) -> NoReturn:
    raise _Called(call)
