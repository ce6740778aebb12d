"""DDP imports torch._dynamo to ask its settings who reduces gradients under the compiler.

Nobody can have changed that setting before torch._dynamo is imported, so the answer is its default. `__init__` asks a
stand-in by another name; what else it could want of torch._dynamo, it gets. Cost without: as in `disabled`.
"""

import sys
from types import ModuleType
from typing import Any

from trainer_boot.overlays.changes import Restore, exchange, renamed
from trainer_boot.overlays.known import need_function

STAND_IN = "_dynamo_or_its_defaults"
DEFAULT = "ddp_optimizer"
INIT = {"3.11": "324e46bb52bd3a73", "3.12": "7d009ba31c0341ee", "3.13": "87bcc9e2f31a7db6"}


class _Defaults:
    """torch._dynamo.utils, as far as DDP asks."""

    @staticmethod
    def get_optimize_ddp_mode() -> str:
        """Who reduces."""
        return DEFAULT


class _StandIn:
    """torch._dynamo: the module itself wherever it is there, or where more is asked than the default."""

    def __getattr__(self, name: str) -> Any:
        if name == "utils" and "torch._dynamo" not in sys.modules:
            return _Defaults
        from importlib import import_module

        return getattr(import_module("torch._dynamo"), name)


def initializer(module: ModuleType) -> Restore:
    """Of torch.nn.parallel.distributed."""
    function = need_function(module.DistributedDataParallel, "__init__", INIT)
    # stays there: a call under way when the change is taken back may still ask
    setattr(sys.modules["torch"], STAND_IN, _StandIn())
    return exchange(function, renamed(function.__code__, {"_dynamo": STAND_IN}))
