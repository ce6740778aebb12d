"""Every optimizer's `step` imports torch._dynamo to break the compiler's graph around its change of the grad mode.

Where nothing is compiled there is no graph to break; what stays is the grad mode. All optimizers share that wrapper's
code, and each gets it back before torch._dynamo is imported. Cost without: as in `disabled`.
"""

from types import CodeType, FunctionType, ModuleType
from typing import Any

from trainer_boot.overlays.changes import Restore, all_of, exchange
from trainer_boot.overlays.known import Unknown, need_code

WRAPPER = {"3.11": "bc08ba2e6af9506b", "3.12": "9ac90a3a1bfb3acb", "3.13": "910b7d74b9c35926"}


def steps(module: ModuleType) -> Restore:
    """Of torch.optim: all its optimizers whose step has the known wrapper."""
    base = module.Optimizer
    found: dict[int, FunctionType] = {}
    for kind in vars(module).values():
        step = vars(kind).get("step") if isinstance(kind, type) and issubclass(kind, base) else None
        if isinstance(step, FunctionType) and step.__code__.co_name == "_use_grad":
            need_code(step.__code__, f"the wrapper of {kind.__name__}.step", WRAPPER)
            found[id(step)] = step
    if not found:
        raise Unknown("no step of an optimizer has the wrapper")
    code = _step_code()
    return all_of([exchange(step, code) for step in found.values()])


def _step_code() -> CodeType:
    """Of a closure over `func` whose globals are torch.optim.optimizer's, as the wrapper's are."""

    def closure(func: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            with torch.set_grad_enabled(arguments[0].defaults["differentiable"]):  # type: ignore[name-defined] # noqa: F821
                return func(*arguments, **options)

        return step

    code: CodeType = closure(None).__code__
    return code
