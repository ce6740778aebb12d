"""How weights are updated: parameter groups, optimizers, the learning rate. Torch is imported by what needs it only."""

from trainer.optim.build import OPTIMIZERS, build_optimizer
from trainer.optim.check import check_combination, check_optim
from trainer.optim.groups import split_parameters
from trainer.optim.optimizers import Optimizers
from trainer.optim.schedule import learning_rate

__all__ = [
    "OPTIMIZERS",
    "Optimizers",
    "build_optimizer",
    "check_combination",
    "check_optim",
    "learning_rate",
    "split_parameters",
]
