"""A model's own names: those its parameters have without DDP, `torch.compile` or recomputation around it."""

from collections.abc import Iterable

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

# Names that only their wrappers use. `module` may also be the user's: it counts only directly inside DDP.
_WRAPPER_NAMES = ("_orig_mod", "_checkpoint_wrapped_module")


def plain_names(model: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Maps each dotted name inside `model` to the name it has without wrappers, in the given order."""
    result = {name: _plain(model, name) for name in names}
    assert len(set(result.values())) == len(result), "two names fall together without their wrappers"
    return result


def _plain(model: nn.Module, name: str) -> str:
    kept = []
    module: nn.Module | None = model
    for part in name.split("."):
        wrapped = module is not None and part in module._modules
        if not (part in _WRAPPER_NAMES or (wrapped and part == "module" and _is_parallel(module))):
            kept.append(part)
        module = _child(module, part)
    return ".".join(kept)


def _is_parallel(module: nn.Module | None) -> bool:
    return isinstance(module, DistributedDataParallel | DataParallel)


def _child(module: nn.Module | None, part: str) -> nn.Module | None:
    """The submodule called `part`; some wrappers hide their own name, so it may be one further down."""
    while module is not None and part not in module._modules:
        module = next((module._modules[name] for name in _WRAPPER_NAMES if name in module._modules), None)
    return None if module is None else module._modules[part]
