"""Built-in models by kind, the user's own, and which loss goes with them. Light: torch comes with the first call."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

from trainer.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from trainer.models.loss import Loss
    from trainer.models.scores import Scored
    from trainer.schema import Model


def _gpt(model: Model, vocabulary: int) -> nn.Module:
    from trainer.models.gpt import build_gpt

    return build_gpt(model, vocabulary=vocabulary)


def _mlp(model: Model, vocabulary: int) -> nn.Module:
    from trainer.models.mlp import build_mlp

    return build_mlp(model)


def _vit(model: Model, vocabulary: int) -> nn.Module:
    from trainer.models.vit import build_vit

    return build_vit(model, vocabulary=vocabulary)


def _resnet(model: Model, vocabulary: int) -> nn.Module:
    from trainer.models.resnet import build_resnet

    return build_resnet(model, vocabulary=vocabulary)


def _function(spec: str, what: str) -> Callable[..., Any]:
    from trainer.user_code import load_object

    found = load_object(spec, what)
    if not callable(found):
        raise UserError(f"{what}: {spec} is not a function", "Name a function or a class.", 2)
    return found


MODELS: dict[str, Callable[[Model, int], nn.Module]] = {
    "gpt": _gpt,
    "mlp": _mlp,
    "vit": _vit,
    "resnet": _resnet,
}


def build_model(model: Model, *, vocabulary: int) -> nn.Module:
    """The model of the run file on the default device, in torch's default dtype; `vocabulary` is what the data needs:
    tokens, or classes of images.

    Raises UserError for sizes that do not fit, or if the user's `build` returns something else than a module.
    """
    if not model.build:
        return MODELS[model.kind](model, vocabulary)
    from torch import nn

    from trainer.user_code import describe

    build = _function(model.build, "model.build")
    try:
        built = build(**model.options)
    except Exception as error:
        raise UserError(
            f"model.build: {model.build} raised {describe(error)}",
            "Correct it or model.options; --traceback shows the whole traceback.",
            2,
        ) from error
    if not isinstance(built, nn.Module):
        raise UserError(
            f"{model.build} returned {type(built).__name__}, not a torch.nn.Module",
            "Return the module to train from the function of model.build.",
            2,
        )
    return built


def choose_loss(model: Model, module: nn.Module) -> Loss:
    """`loss(model, batch) -> (sum, count)` for `module`: the user's `model.loss`, else the module's own method `loss`,
    else the one of its kind.
    """
    from trainer.models import loss

    if model.loss:
        return loss.own_function(_function(model.loss, "model.loss"), model.loss)
    if isinstance(getattr(module, "loss", None), MethodType):  # not a criterion kept under that name
        return loss.own_method
    if model.build:
        return loss.loss_by_batch
    return loss.token_loss if model.kind == "gpt" else loss.classification_loss


def scored(loss: Loss) -> Scored | None:
    """`loss` with counts of how often it is right, if it is one of classes."""
    from trainer.models import loss as losses

    if loss is not losses.classification_loss and loss is not losses.loss_by_batch:
        return None
    from trainer.models.scores import Scored

    return Scored(loss)
