"""Functions of torch that the compiler must not look into ask for the whole compiler before their first call.

Two decorators make them: `torch._compile._disable_dynamo` (optimizers' methods, DDP's forward, DTensor's constructor,
`torch.utils.checkpoint`, dispatch modes, operators in Python) and FSDP2's `_dynamo_disable` (each of its hooks). What
they make imports torch._dynamo to get itself a version of the function that turns the compiler off. Where nothing is
compiled there is nothing to turn off: what they make asks `no_compiler`, which gives the function itself. Every
function that was made so gets its own code back, and loses what it has kept, before torch._dynamo is imported.

Cost without: 899 modules and 1.3 s of CPU time, shared with `grad_mode` and `reducer_mode`, which ask for it too.
"""

from types import CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakSet

from trainer_boot.overlays import no_compiler
from trainer_boot.overlays.changes import Restore, all_of, exchange, renamed
from trainer_boot.overlays.known import Unknown, need_function

DISABLE = {"3.11": "cfc55e2cf02746cc", "3.12": "6411c18081cb3177", "3.13": "97165ae031f7b3ce"}
HOOK = {"3.11": "60b0270afcc6b4d5", "3.12": "d2b7ec984481eaaa", "3.13": "9973265ae11b1ccf"}
COMPILE, FSDP = "torch._compile", "torch.distributed.fsdp._fully_shard._fsdp_common"


class _Maker:
    """A decorator of torch whose products get other code."""

    def __init__(self, function: FunctionType, names: dict[str, str]) -> None:
        self._original = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        inner = [each for each in function.__code__.co_consts if isinstance(each, CodeType)]
        if len(inner) != 1:
            raise Unknown(f"{function.__name__} makes {len(inner)} functions")
        self._before, self._after = inner[0], renamed(inner[0], names)
        self._made: WeakSet[FunctionType] = WeakSet()

    def make(self, *arguments: Any) -> Any:
        """As the decorator; a function that it made asks the stand-in."""
        found = self._original(*arguments)
        if isinstance(found, FunctionType) and found.__code__ is self._before:
            found.__code__ = self._after
            self._made.add(found)
        return found

    def restore(self) -> None:
        """All of them as they were made."""
        for function in list(self._made):
            if function.__code__ is self._after:
                function.__code__ = self._before
        self._made.clear()


_makers: dict[str, _Maker] = {}


def make(name: str, *arguments: Any) -> Any:
    """What the decorator of that module makes."""
    return _makers[name].make(*arguments)


def functions(module: ModuleType) -> Restore:
    """Of torch._compile, before anything is decorated."""
    function = need_function(module, "_disable_dynamo", DISABLE)

    def decorator(fn: Any = None, recursive: Any = True) -> Any:
        from trainer_boot.overlays import disabled

        return disabled.make("torch._compile", fn, recursive)

    names = no_compiler.asked({no_compiler.COMPILER: "torch"})
    return all_of([no_compiler.forget, _exchange(COMPILE, function, decorator, names)])


def hooks(module: ModuleType) -> Restore:
    """Of torch.distributed.fsdp._fully_shard._fsdp_common, before its hooks are decorated."""
    function = need_function(module, "_dynamo_disable", HOOK)

    def decorator(func: Any) -> Any:
        from trainer_boot.overlays import disabled

        return disabled.make("torch.distributed.fsdp._fully_shard._fsdp_common", func)

    return _exchange(FSDP, function, decorator, no_compiler.asked())


def _exchange(name: str, function: FunctionType, decorator: Any, names: dict[str, str]) -> Restore:
    _makers[name] = _Maker(function, names)
    return all_of([_makers[name].restore, exchange(function, decorator.__code__)])
