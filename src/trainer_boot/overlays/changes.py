"""Changes to functions that can be taken back to the last bit: the function object stays, its code is exchanged."""

import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType

Restore = Callable[[], None]
# a module's own: asking some modules for their attributes makes them load
_GLOBALS: Callable[[ModuleType], dict[str, object]] = vars(ModuleType)["__dict__"].__get__


def exchange(function: FunctionType, code: CodeType) -> Restore:
    """Gives the function other code, of the same closure; the result gives it back its own.

    A call under way goes on with the code that it began with.
    """
    original = function.__code__
    function.__code__ = code

    def restore() -> None:
        if function.__code__ is code:
            function.__code__ = original

    return restore


def renamed(code: CodeType, names: dict[str, str]) -> CodeType:
    """The same code, and that of the functions in it, reading other global names, attributes or modules: each of
    `names` must occur."""
    missing = set(names) - _names(code)
    assert not missing, (missing, code.co_name)
    return _renamed(code, names)


def all_of(restores: list[Restore]) -> Restore:
    """One for all, the last change first."""

    def restore() -> None:
        while restores:
            restores.pop()()

    return restore


def rebind(stand_ins: dict[str, object], real: ModuleType) -> None:
    """Whatever module has one of the stand-ins among its globals, by any name, has the real one instead."""
    wanted = {id(value): name for name, value in stand_ins.items()}
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or name.startswith("trainer_boot."):
            continue
        place = _GLOBALS(module)
        for key, value in list(place.items()):
            if id(value) in wanted:
                place[key] = getattr(real, wanted[id(value)])


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _renamed(code: CodeType, names: dict[str, str]) -> CodeType:
    return code.replace(
        co_names=tuple(names.get(name, name) for name in code.co_names),
        co_consts=tuple(_renamed(each, names) if isinstance(each, CodeType) else each for each in code.co_consts),
    )
