"""DDP imports torch._dynamo to ask its settings who reduces gradients under the compiler.

`__init__` asks `no_compiler` instead, which knows the default. Cost without: as in `disabled`.
"""

from types import ModuleType

from trainer_boot.overlays.changes import Restore
from trainer_boot.overlays.known import need_function
from trainer_boot.overlays.no_compiler import asked_by

INIT = {"3.11": "324e46bb52bd3a73", "3.12": "7d009ba31c0341ee", "3.13": "87bcc9e2f31a7db6"}


def initializer(module: ModuleType) -> Restore:
    """Of torch.nn.parallel.distributed."""
    function = need_function(module.DistributedDataParallel, "__init__", INIT)
    return asked_by(function)
