"""Losses as (sum over counted items, count of them): what can be added over micro-batches and ranks without error."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from trainer.errors import UserError
from trainer.models.layers import is_part

IGNORED = -100

Batch: TypeAlias = Mapping[str, Any] | Sequence[Any] | Tensor
Loss: TypeAlias = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]


def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of -log softmax(logits)[label] in nats and the number of labels that are not -100.

    `logits` (..., classes), `labels` (...) int64. Computed in float32 (float64 for float64 logits); no counted label
    gives 0 and 0. Logits may be a DTensor cut over the classes: they are not gathered, and the sum is on all ranks.
    """
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    flat = logits.reshape(-1, logits.shape[-1])
    if type(flat) is not Tensor and is_part(flat):
        total: Tensor = _OfParts.apply(flat, labels.reshape(-1))
    else:
        total = _sum(flat, labels.reshape(-1))
    return total, (labels != IGNORED).sum()


def _sum(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")


class _OfParts(torch.autograd.Function):
    """Cross entropy of logits cut over the classes. torch's `loss_parallel` must surround the backward too: here it is
    around both, whoever calls them."""

    @staticmethod
    def forward(ctx: Any, logits: Any, labels: Tensor) -> Tensor:
        from torch.distributed.tensor.parallel import loss_parallel

        with torch.enable_grad(), loss_parallel():
            ctx.logits = logits.detach().requires_grad_()
            ctx.total = _sum(ctx.logits, labels).to_local()  # type: ignore[attr-defined]  # a DTensor
        found: Tensor = ctx.total.detach()
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        from torch.distributed.tensor.parallel import loss_parallel

        with loss_parallel():
            (found,) = torch.autograd.grad(ctx.total, ctx.logits, gradient)
        del ctx.total, ctx.logits
        return found, None


def token_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Cross entropy of the next token. Labels are shifted already: labels[:, t] is the token after tokens[:, t].

    A plain (B, S + 1) tensor of ids, as a simple data set gives it, is shifted here.
    """
    if isinstance(batch, Tensor) and batch.ndim == 2 and not batch.is_floating_point():
        batch = {"tokens": batch[:, :-1], "labels": batch[:, 1:]}
    if not isinstance(batch, Mapping) or "tokens" not in batch or "labels" not in batch:
        raise UserError(
            "the data has no tokens and labels, which the loss of a language model needs",
            'Return samples as {"tokens": ..., "labels": ...} or rows of ids, or set model.loss.',
            2,
        )
    documents = batch.get("documents")
    logits = model(batch["tokens"]) if documents is None else model(batch["tokens"], documents)
    own = getattr(model, "own_tokens", None)  # a rank may compute a part of each sequence
    return cross_entropy(logits, own(batch["labels"]) if own is not None else batch["labels"])


def classification_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Cross entropy of the classes of samples: {"inputs", "labels"} or (inputs, labels)."""
    inputs, labels = inputs_and_labels(batch)
    return cross_entropy(model(inputs), labels)


def inputs_and_labels(batch: Batch) -> tuple[Any, Tensor]:
    """Of samples with a class each; UserError (status 2) for a batch that has no such."""
    if isinstance(batch, Mapping) and "inputs" in batch and "labels" in batch:
        return batch["inputs"], batch["labels"]
    if isinstance(batch, Sequence) and len(batch) == 2:
        inputs, labels = batch
        return inputs, labels
    raise UserError(
        "the data has no inputs and labels, which the loss of a classifier needs",
        'Return samples as (input, label) or {"inputs": ..., "labels": ...}, or set model.loss.',
        2,
    )


def loss_by_batch(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """For models of the user's own that bring no loss: tokens are a language model's, all else is classified."""
    tokens = isinstance(batch, Mapping) and "tokens" in batch
    return token_loss(model, batch) if tokens else classification_loss(model, batch)


def takes_parts(loss: Loss) -> bool:
    """May the model give this loss logits that are cut over the classes (see `cross_entropy`)?"""
    return getattr(loss, "loss", loss) in (token_loss, classification_loss, loss_by_batch)  # also of one that is scored


def own_method(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """The loss that is the model's method `loss(batch) -> (sum, count)`."""
    return checked(model.loss(batch), "the model's method `loss`")  # type: ignore[operator]  # a user's own


def own_function(function: Callable[..., Any], name: str) -> Loss:
    """The user's `loss(model, batch) -> (sum, count)`."""

    def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        return checked(function(model, batch), name)

    return loss


def checked(result: Any, name: str) -> tuple[Tensor, Tensor]:
    """A user's (sum, count): the sum a tensor of one element, the count a tensor or a number."""
    if isinstance(result, tuple | list) and len(result) == 2 and isinstance(result[0], Tensor):
        total, count = result
        if total.numel() == 1:
            if not isinstance(count, Tensor):
                count = torch.tensor(count, device=total.device)
            if count.numel() == 1:
                return total.reshape(()), count.reshape(()).to(torch.int64)
    raise UserError(
        f"{name} did not return the sum of the loss and the number of items it is over",
        "Return (sum, count): a tensor of one element, and a number or a tensor of one element.",
        2,
    )
