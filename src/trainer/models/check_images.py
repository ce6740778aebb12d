"""What the settings of a model of images must keep, and its size: arithmetic, no torch."""

from trainer.errors import UserError
from trainer.schema import Model


def check_images(model: Model, classes: int | None) -> None:
    """Raises UserError (status 2) for sizes of a vit or resnet that do not fit together, or too few classes.

    `classes` are those of the data, 0 if it does not tell; None while it has not been looked at.
    """
    if model.kind == "vit":
        _check_vit(model)
    else:
        _check_resnet(model)
    if classes == 0 and not model.classes:
        raise UserError("model.classes is not set", "Set it to the number of different labels.", 2)
    if classes is not None and 0 < model.classes < classes:
        raise UserError(
            f"the data has {classes} classes, but model.classes is {model.classes}",
            f"Set model.classes to {classes} or more, or to 0 to take it from the data.",
            2,
        )


def count_resnet(model: Model, classes: int) -> int:
    """Trained parameters: kernels, two for each filter of a batch norm, and the output layer."""
    stem = 49 if model.stem == "large" else 9
    total = (stem * model.channels + 2) * model.filters
    inputs = model.filters
    for stage, blocks in enumerate(model.stages):
        outputs = model.filters * 2**stage
        for number in range(blocks):
            total += 9 * outputs * (inputs + outputs) + 4 * outputs
            if inputs != outputs or (stage and not number):
                total += (inputs + 2) * outputs
            inputs = outputs
    return total + (inputs + 1) * classes


def _check_vit(model: Model) -> None:
    if model.image % model.patch:
        raise UserError(
            f"model.image = {model.image} is not a multiple of model.patch = {model.patch}",
            f"Set model.patch to a divisor of {model.image}.",
            2,
        )
    head = model.width // model.heads
    if head % 4:
        raise UserError(
            f"a head is {head} wide (model.width / model.heads), and 2-d rotary positions need a multiple of 4",
            "Set model.width to a multiple of 4 x model.heads.",
            2,
        )


def _check_resnet(model: Model) -> None:
    if not model.stages or any(blocks < 1 for blocks in model.stages):
        raise UserError(
            f"model.stages is {model.stages}, which is not one or more stages of at least one block",
            "List the blocks of each stage, such as [2, 2, 2, 2].",
            2,
        )
    halvings = len(model.stages) - 1 + (2 if model.stem == "large" else 0)
    if model.image < 2**halvings:
        raise UserError(
            f"model.image = {model.image} is too small to be halved {halvings} times",
            "Use fewer stages, model.stem small, or larger images.",
            2,
        )
