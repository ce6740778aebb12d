"""Losses as (sum over counted items, count of them): what can be added over micro-batches and ranks without error."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.errors import UserError

IGNORED = -100

Batch: TypeAlias = Mapping[str, Any] | Sequence[Any] | Tensor
Loss: TypeAlias = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]


def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of -log softmax(logits)[label] in nats and the number of labels that are not -100.

    `logits` (..., classes), `labels` (...) int64. Computed in float32 (float64 for float64 logits); no counted label
    gives 0 and 0.
    """
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    total = functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=IGNORED, reduction="sum"
    )
    return total, (labels != IGNORED).sum()


def token_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Cross entropy of the next token. Labels are shifted already: labels[:, t] is the token after tokens[:, t].

    A plain (B, S + 1) tensor of ids, as a simple data set gives it, is shifted here.
    """
    if isinstance(batch, Tensor) and batch.ndim == 2 and not batch.is_floating_point():
        batch = {"tokens": batch[:, :-1], "labels": batch[:, 1:]}
    if not isinstance(batch, Mapping) or "tokens" not in batch or "labels" not in batch:
        raise UserError(
            "The data gives no tokens and labels, which a language model's loss needs.",
            'Let samples be {"tokens": ..., "labels": ...} or rows of ids, or give model.loss.',
            2,
        )
    documents = batch.get("documents")
    logits = model(batch["tokens"]) if documents is None else model(batch["tokens"], documents)
    return cross_entropy(logits, batch["labels"])


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
        "The data gives no inputs and labels, which a classifier's loss needs.",
        'Let samples be (input, label) or {"inputs": ..., "labels": ...}, or give model.loss.',
        2,
    )


def loss_by_batch(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """For models of the user's own that bring no loss: tokens are a language model's, all else is classified."""
    tokens = isinstance(batch, Mapping) and "tokens" in batch
    return token_loss(model, batch) if tokens else classification_loss(model, batch)


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
        f"{name} did not return the sum of the loss and the number of items it is over.",
        "Return (sum, count): a tensor of one element, and a number or a tensor of one element.",
        2,
    )
