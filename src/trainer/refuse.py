"""Everything about a configuration that can be refused without torch, data or devices."""

from trainer.config import require_data
from trainer.mesh import BatchPlan, plan_batch
from trainer.models.check import check_model
from trainer.optim import check_optim
from trainer.schema import Config


def refuse_early(config: Config, world_size: int) -> BatchPlan:
    """The batch arithmetic of a run that may be started on `world_size` ranks; UserError (status 2) for one that may
    not."""
    require_data(config)
    if not config.model.build:
        check_model(config.model, config.model.vocabulary or None)
    check_optim(config.optim)
    return plan_batch(config, world_size)
