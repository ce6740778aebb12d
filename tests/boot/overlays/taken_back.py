"""Run as a process: puts all overlays on, uses some, imports the compiler, and prints as JSON what is left of them."""

import gc
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any

MODULES = (
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.pipelining.schedules",
    "torch.utils.checkpoint",
    "torch.fx.experimental.symbolic_shapes",
)
OWN = vars(ModuleType)["__dict__"].__get__  # asking a deferred module for it would load it
SYMBOLIC, SCHEDULES = MODULES[-1], MODULES[3]


def names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from names(each)


def traces(ours: set[str]) -> list[str]:
    """Functions whose code reads one of our names, and what functions have kept of a stand-in."""
    found = []
    each: Any
    for each in gc.get_objects():
        # type(): some of torch's objects warn when they are asked for their class
        if type(each) is FunctionType and not str(each.__module__).startswith(("trainer_boot", "__main__", "None")):
            if ours & set(names(each.__code__)):
                found.append(f"{each.__module__}.{each.__qualname__}")
            name = each.__qualname__
            if vars(each).get("__dynamo_disable") is each:
                found.append(f"{name} keeps itself")
    return sorted(found)


def stand_ins() -> list[str]:
    """Globals of torch's modules that are ours."""
    return sorted(
        f"{name}.{key}"
        for name, module in list(sys.modules.items())
        if name.startswith("torch") and isinstance(module, ModuleType)
        for key, value in list(OWN(module).items())
        if issubclass(type(value), (FunctionType, type)) and str(value.__module__).startswith("trainer_boot")
    )


def main() -> None:
    from trainer_boot import overlays

    note: Any = overlays.install()
    import torch as really

    torch: Any = really
    for name in MODULES:
        import_module(name)
    from trainer_boot.overlays import no_compiler, no_symbols

    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    torch._check(model(torch.ones(1, 3)).shape[0] == 1)
    torch.utils.checkpoint.checkpoint(model, torch.ones(1, 3), use_reentrant=False).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    ours = {no_compiler.STAND_IN, no_compiler.HERE, no_symbols.ALIAS, no_symbols.HERE, "trainer_boot.overlays"}
    before = {each["name"]: (each["state"], each["why"]) for each in note["overlays"]}
    early = [name for name in ("torch._dynamo", "sympy") if name in sys.modules]
    changed, replaced = traces(ours), stand_ins()
    import torch._dynamo

    after = {each["name"]: each["state"] for each in note["overlays"]}
    module, schedules = sys.modules[SYMBOLIC], sys.modules[SCHEDULES]
    real = [
        type(module).__name__,
        schedules.OptimizedModule is torch._dynamo.OptimizedModule,
        sys.modules["torch.distributed.tensor._ops._math_ops"].guard_or_false is vars(module)["guard_or_false"],
        type(module.__loader__).__name__ == type(schedules.__loader__).__name__ == type(torch.__loader__).__name__,
    ]
    print(json.dumps([before, early, changed, replaced, after, traces(ours), stand_ins(), real]))


if __name__ == "__main__":
    main()
