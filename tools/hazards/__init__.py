"""The calls of prove_hazards.py, by name."""

from tools.hazards import compiler, sharded, training, waiting
from tools.hazards.common import CALLS

__all__ = ["CALLS", "compiler", "sharded", "training", "waiting"]
