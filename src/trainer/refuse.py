"""Everything about a configuration that can be refused without torch, data or devices."""

from trainer import startup
from trainer.config import nearest, require_data
from trainer.errors import UserError
from trainer.mesh import BatchPlan, plan_batch, plan_layout
from trainer.models.check import check_model
from trainer.optim import check_combination, check_optim
from trainer.schema import Config


def refuse_early(config: Config, world_size: int) -> BatchPlan:
    """The batch arithmetic of a run that may be started on `world_size` ranks; UserError (status 2) for one that may
    not."""
    require_data(config)
    check_layers(config.start.layers)
    if not config.model.build:
        check_model(config.model, config.model.vocabulary or None)
    check_optim(config.optim)
    check_combination(config.optim, config.parallel.strategy, config.precision.weights)
    return plan_batch(config, plan_layout(config, world_size).data_ranks)


def check_layers(names: list[str]) -> None:
    """UserError (status 2) for a layer of the start that there is not."""
    known = startup.layers()
    for name in names:
        if name not in known:
            choices = "one of: " + ", ".join(known)
            raise UserError(f"start.layers: there is no layer {name!r}", f"{nearest(name, known)} {choices}".strip(), 2)
