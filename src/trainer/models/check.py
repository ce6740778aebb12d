"""What a built-in model's settings must keep, and what follows from them: arithmetic, no torch.

`trainer check` and the start of every run use it before torch is imported.
"""

from trainer.errors import UserError
from trainer.schema import Model


def key_value_heads(model: Model) -> int:
    """Key/value heads of the attention: as many as query heads unless the run file says fewer."""
    return model.kv_heads or model.heads


def hidden_width(model: Model) -> int:
    """Width inside the SwiGLU. Three matrices of 8/3 of the width cost as much as the usual two of 4 times (Shazeer,
    "GLU Variants Improve Transformer", 2020); rounded up to 32, which matrix kernels like.
    """
    return model.hidden or -(-8 * model.width // 3 // 32) * 32


def vocabulary_size(model: Model, vocabulary: int) -> int:
    """Rows of the embedding: what the run file asks for, else the tokenizer's `vocabulary`."""
    return model.vocabulary or vocabulary


def class_count(model: Model, classes: int) -> int:
    """Outputs of a classifier: what the run file asks for, else the `classes` of the data."""
    return model.classes or classes


def check_model(model: Model, vocabulary: int | None = None) -> None:
    """Raises UserError (status 2) for sizes that do not fit together.

    `vocabulary` is what the data needs (for images: classes); None while the data has not been looked at.
    """
    if model.build:
        return
    if not 0.0 <= model.dropout < 1.0:
        raise UserError(
            f"model.dropout is {model.dropout:g}, which is not a probability below 1",
            "Set model.dropout to at least 0 and less than 1.",
            2,
        )
    if model.kind == "mlp":
        _check_mlp(model)
        return
    if model.kind != "resnet":
        _check_heads(model)
    if model.kind == "gpt":
        _check_gpt(model, vocabulary)
    else:
        from trainer.models.check_images import check_images

        check_images(model, vocabulary)


def count_parameters(model: Model, vocabulary: int) -> int:
    """Number of trained parameters of a built-in model, without building it.

    Raises UserError for a model of the user's own, whose size only building it can tell.
    """
    if model.build:
        raise UserError(f"the size of {model.build} is not known before it is built", "Use a built-in model.", 2)
    if model.kind == "mlp":
        first = (model.inputs + 1) * model.width
        between = (model.layers - 1) * (model.width + 1) * model.width
        return first + between + (model.width + 1) * model.classes
    if model.kind == "resnet":
        from trainer.models.check_images import count_resnet

        return count_resnet(model, class_count(model, vocabulary))
    width = model.width
    head = width // model.heads
    attention = 2 * width * width + 2 * width * head * key_value_heads(model)
    norms = 2 * width + (2 * head if model.qk_norm else 0)
    block = attention + 3 * width * hidden_width(model) + norms
    if model.kind == "vit":
        patches = (model.channels * model.patch**2 + 1) * width
        return patches + model.layers * block + width + width * class_count(model, vocabulary)
    tables = vocabulary_size(model, vocabulary) * (1 if model.tied else 2) + model.bigram
    return tables * width + model.layers * block + width


def _check_heads(model: Model) -> None:
    if model.width % model.heads:
        raise UserError(
            f"model.width = {model.width} is not a multiple of model.heads = {model.heads}",
            f"Set model.width to a multiple of {model.heads}, or model.heads to a divisor of {model.width}.",
            2,
        )
    head = model.width // model.heads
    if head % 2:
        raise UserError(
            f"a head is {head} wide (model.width / model.heads), and rotary positions need an even width",
            "Set model.width to an even multiple of model.heads.",
            2,
        )
    if model.heads % key_value_heads(model):
        raise UserError(
            f"model.heads = {model.heads} is not a multiple of model.kv_heads = {model.kv_heads}",
            "Set model.kv_heads to a divisor of model.heads, or to 0 for as many as model.heads.",
            2,
        )


def _check_gpt(model: Model, vocabulary: int | None) -> None:
    if model.bigram == 1:
        raise UserError(
            "model.bigram is 1, but row 0 is for the first position, so no row is left for pairs",
            "Set model.bigram to at least 2, or to 0 for no table.",
            2,
        )
    if vocabulary is not None and model.vocabulary and model.vocabulary < vocabulary:
        raise UserError(
            f"the data holds token ids up to {vocabulary - 1}, beyond model.vocabulary = {model.vocabulary}",
            f"Set model.vocabulary to {vocabulary} or more, or to 0 to take it from the data.",
            2,
        )


def _check_mlp(model: Model) -> None:
    if model.inputs < 1:
        raise UserError("model.inputs is not set", "Set it to the number of values of one sample.", 2)
    if model.classes < 1:
        raise UserError("model.classes is not set", "Set it to the number of different labels.", 2)
