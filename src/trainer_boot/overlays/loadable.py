"""What torch.load takes without being told grows when the compiler is imported: DTensor and its parts, for one.

A file of weights that names one of those classes is loaded as it was: at the first such name torch._dynamo is imported.
"""

from collections.abc import Callable
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from trainer_boot.overlays.changes import Restore, exchange
from trainer_boot.overlays.known import need_function

ALLOWED = {"3.11": "6ea3395556a375ce", "3.12": "a2fd1a61fbacfaa6", "3.13": "787d0d657e2b27a2"}
BROUGHT = ("torch._dynamo.decorators.", "torch.distributed.device_mesh.", "torch.distributed.tensor.")

_original: Callable[[], dict[str, Any]]


class _Allowed(dict[str, Any]):
    """Name -> class; knows of the names that are still to come."""

    def __contains__(self, name: object) -> bool:
        if not super().__contains__(name) and isinstance(name, str) and name.startswith(BROUGHT):
            import_module("torch._dynamo")
            self.update(_original())
        return super().__contains__(name)


def allowed() -> dict[str, Any]:
    """What is allowed now, and what would be."""
    return _Allowed(_original())


def names(module: ModuleType) -> Restore:
    """Of torch._weights_only_unpickler."""
    global _original
    function = need_function(module, "_get_user_allowed_globals", ALLOWED)
    _original = FunctionType(function.__code__, function.__globals__)

    def asked() -> dict[str, Any]:
        from trainer_boot.overlays import loadable

        return loadable.allowed()

    return exchange(function, asked.__code__)
