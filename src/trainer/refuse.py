"""Everything about a configuration that can be refused without torch, data or devices."""

from trainer import startup
from trainer.config import require_data
from trainer.errors import UserError
from trainer.mesh import BatchPlan, Layout, plan_batch, plan_layout
from trainer.models.check import check_model
from trainer.optim import check_combination, check_optim
from trainer.refuse_formats import check_formats, check_sending
from trainer.refuse_memory import check_memory
from trainer.schema import Config


def refuse_early(config: Config, world_size: int) -> BatchPlan:
    """The batch arithmetic of a run that may be started on `world_size` ranks; UserError (status 2) for one that may
    not."""
    layout = refuse_settings(config, world_size)
    plan = plan_batch(config, layout.data_ranks)
    check_sending(config, plan)
    return plan


def refuse_settings(config: Config, world_size: int) -> Layout:
    """The layout of such a run, whatever its batch; UserError (status 2) for settings that allow none."""
    require_data(config)
    check_layers(config.start.layers)
    if not config.model.build:
        check_model(config.model, config.model.vocabulary or None)
    check_images(config)
    check_optim(config.optim)
    check_combination(config.optim, config.parallel.strategy, config.precision.weights)
    check_formats(config)
    layout = plan_layout(config, world_size)
    check_memory(config, layout)
    return layout


def check_images(config: Config) -> None:
    """UserError (status 2) where model and data are not both of images, and for settings of these that do not fit."""
    data, model = config.data, config.model
    if data.images and not model.build and model.kind == "gpt":
        raise UserError("model.kind gpt does not take data.images", "Set model.kind to vit or resnet.", 2)
    if (data.text or data.jsonl) and not model.build and model.kind in ("vit", "resnet"):
        raise UserError(f"model.kind {model.kind} takes images, but the data is text", "Set data.images instead.", 2)
    if data.images:
        from trainer.data.images import check_normalization

        check_normalization(data, model.channels if not model.build else 0)
    if model.kind == "vit" and not model.build and config.parallel.tensor > 1 and config.parallel.sequence_parallel:
        raise UserError(
            "parallel.sequence_parallel does not support model.kind vit", "Remove parallel.sequence_parallel.", 2
        )
    if model.kind == "resnet" and not model.build and config.precision.weights == "bf16":
        raise UserError(
            "precision.weights bf16 has too few digits for the running statistics of batch norms",
            "Set precision.weights to fp32.",
            2,
        )


def check_layers(names: list[str]) -> None:
    """UserError (status 2) for a layer of the start that there is not."""
    known = startup.layers()
    for name in names:
        if name not in known:
            from trainer.suggestions import did_you_mean

            fix = f"{did_you_mean(name, known)} Choose from {', '.join(known)}.".strip()
            raise UserError(f"start.layers: there is no layer {name!r}", fix, 2)
