"""Changes to functions that can be taken back to the last bit: the function object stays, its code is exchanged."""

from collections.abc import Callable
from types import CodeType, FunctionType

Restore = Callable[[], None]


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
    """The same code, reading other global names, attributes or modules: each of `names` must occur in it."""
    assert set(names) <= set(code.co_names), (names, code.co_names)
    return code.replace(co_names=tuple(names.get(name, name) for name in code.co_names))


def all_of(restores: list[Restore]) -> Restore:
    """One for all, the last change first."""

    def restore() -> None:
        while restores:
            restores.pop()()

    return restore
