"""A submodule that the compiler's import used to bring along is still there for who says `torch.distributed.fsdp`.

Programs name submodules of torch that they never imported; it works because the first optimizer imported torch._dynamo,
and that imported them. Now the package imports such a submodule when it is named.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from trainer_boot.overlays.changes import Restore, all_of
from trainer_boot.overlays.known import Unknown

# what a plain process had after its first AdamW step and one with overlays had not, package by package
BROUGHT = {
    "torch._decomp": ("decompositions_for_rng",),
    "torch._functorch": ("config", "deprecated", "make_functional"),
    "torch._higher_order_ops": ("triton_kernel_wrap",),
    "torch.cuda": ("_pin_memory_utils",),
    "torch.distributed": (
        "_composable",
        "_composable_state",
        "_functional_collectives",
        "_functional_collectives_impl",
        "_local_tensor",
        "_shard",
        "_state_dict_utils",
        "_symmetric_memory",
        "fsdp",
        "nn",
        "tensor",
    ),
    "torch.distributed.algorithms": ("_checkpoint", "_comm_hooks"),
    "torch.fx.experimental": ("_dynamism", "_size_hinting", "_spec_binding", "recording", "symbolic_shapes"),
    "torch.fx.passes": ("graph_transform_observer",),
    "torch.nn.utils": ("_expanded_weights",),
    "torch.testing._internal": ("distributed",),
    "torch.utils": ("checkpoint", "_device", "_functools", "_indented_buffer", "_pallas", "_sympy", "_triton"),
}


def packages(module: ModuleType) -> Restore:
    """Of torch, once it is imported as a whole."""
    restores: list[Restore] = []
    for name, brought in BROUGHT.items():
        package = sys.modules.get(name)
        if package is None:
            continue
        if "__getattr__" in _names(package):
            all_of(restores)()
            raise Unknown(f"{name} serves attributes of its own")
        restores.append(_serve(package, brought))
    return all_of(restores)


def _serve(package: ModuleType, brought: tuple[str, ...]) -> Restore:
    def __getattr__(name: str) -> Any:
        full = f"{package.__name__}.{name}"
        # one that is being imported right now is not an attribute yet
        if name in brought and full not in sys.modules:
            return import_module(full)
        raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")

    _names(package)["__getattr__"] = __getattr__

    def restore() -> None:
        if _names(package).get("__getattr__") is __getattr__:
            del _names(package)["__getattr__"]

    return restore


def _names(package: ModuleType) -> dict[str, Any]:
    """What the package holds, without waking one that is lazy."""
    found: dict[str, Any] = ModuleType.__getattribute__(package, "__dict__")
    return found
