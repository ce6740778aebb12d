"""Activation checkpointing asks torch._dynamo for a setting, and to keep the compiler out of a hook.

Both are asked of `no_compiler`. Cost without: as in `disabled`.
"""

from types import ModuleType

from trainer_boot.overlays.changes import Restore, all_of
from trainer_boot.overlays.known import need_function
from trainer_boot.overlays.no_compiler import asked_by

GENERATOR = {"3.11": "2d54d4d62db7470a", "3.12": "cf12f7e4ad4c3926", "3.13": "f3418356a63d0192"}
HOOK = {"3.11": "e90af03d087db8c3", "3.12": "084f5f152900bba7", "3.13": "34728e6526de5fe4"}


def checkpointing(module: ModuleType) -> Restore:
    """Of torch.utils.checkpoint."""
    functions = [
        need_function(module, "_checkpoint_without_reentrant_generator_impl", GENERATOR),
        need_function(module._recomputation_hook, "__init__", HOOK),
    ]
    return all_of([asked_by(each) for each in functions])
