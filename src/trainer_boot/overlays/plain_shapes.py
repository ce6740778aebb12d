"""What torch.fx.experimental.symbolic_shapes says of plain numbers, without sympy; of all else it is asked itself.

A size that is a symbol has a type of torch's own and can exist only once the real module has made it, so a plain bool,
int or float, a tuple of them, or a dense tensor whose sizes are ints tells nothing that sympy would be needed for.
`ANSWERS` are the names that the stand-in module serves.
"""

from collections.abc import Iterator
from importlib import import_module
from operator import and_, or_
from typing import Any

SYMBOLIC = "torch.fx.experimental.symbolic_shapes"
ANSWERS: dict[str, Any] = {}


class GuardOnDataDependentSymNode(RuntimeError):
    """Nothing raises this one: the real one can only come from the real module."""


def _answer(function: Any) -> Any:
    ANSWERS[function.__name__] = function
    return function


def _real(name: str) -> Any:
    return getattr(import_module(SYMBOLIC), name)


def _plain(value: Any) -> bool:
    """Nothing symbolic can be in it."""
    kind = type(value)
    if kind is int or kind is bool or kind is float or value is None or kind is str:
        return True
    if isinstance(value, (tuple, list)):
        return all(map(_plain, value))
    import torch

    if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested:
        return _plain(value.size()) and _plain(value.stride()) and _plain(value.storage_offset())
    return False


@_answer
def expect_true(value: Any, skip: int = 0) -> Any:
    """The value itself, where it is a bool. A symbol remembers who asked: one frame more for this one."""
    return value if type(value) is bool else _real("expect_true")(value, skip + 1)


@_answer
def guard_bool(value: Any) -> Any:
    """The value itself."""
    return value if type(value) is bool else _real("guard_bool")(value)


@_answer
def guard_or_false(value: Any) -> Any:
    """The value itself; False where a symbol does not know."""
    return value if type(value) is bool else _real("guard_or_false")(value)


@_answer
def guard_or_true(value: Any) -> Any:
    """The value itself; True where a symbol does not know."""
    return value if type(value) is bool else _real("guard_or_true")(value)


@_answer
def guard_size_oblivious(value: Any) -> Any:
    """The value itself, with a warning: for those that import it and do not call it."""
    return _real("guard_size_oblivious")(value)


@_answer
def statically_known_true(value: Any) -> Any:
    """The value itself."""
    return value if type(value) is bool else _real("statically_known_true")(value)


@_answer
def statically_known_false(value: Any) -> Any:
    """The opposite of the value."""
    return not value if type(value) is bool else _real("statically_known_false")(value)


@_answer
def guard_int(value: Any) -> Any:
    """The value itself."""
    return value if type(value) is int else _real("guard_int")(value)


@_answer
def guarding_hint_or_throw(value: Any) -> Any:
    """The value itself."""
    return value if type(value) in (int, bool) else _real("guarding_hint_or_throw")(value)


@_answer
def optimization_hint(value: Any, fallback: Any = None) -> Any:
    """The value itself."""
    return value if type(value) is int else _real("optimization_hint")(value, fallback)


@_answer
def has_guarding_hint(value: Any) -> Any:
    """Is its value known?"""
    return True if type(value) in (int, bool, float) else _real("has_guarding_hint")(value)


@_answer
def is_concrete_int(value: Any) -> Any:
    """Is it a plain number?"""
    return True if type(value) is int else _real("is_concrete_int")(value)


@_answer
def is_nested_int(value: Any) -> Any:
    """Is it the length of a ragged dimension?"""
    return False if type(value) is int else _real("is_nested_int")(value)


@_answer
def is_symbolic(value: Any) -> Any:
    """Is it a symbol?"""
    return False if type(value) in (int, bool, float) else _real("is_symbolic")(value)


@_answer
def sym_and(value: Any, *others: Any) -> Any:
    """All of them, by the operator."""
    for other in others:
        value = and_(value, other)
    return value


@_answer
def sym_or(value: Any, *others: Any) -> Any:
    """Any of them, by the operator."""
    for other in others:
        value = or_(value, other)
    return value


@_answer
def sym_eq(left: Any, right: Any) -> Any:
    """Are two sizes equal?"""
    if type(left) is int and type(right) is int:
        return left == right
    if _sizes(left) and _sizes(right):
        return tuple(left) == tuple(right)
    return _real("sym_eq")(left, right)


@_answer
def free_symbols(value: Any) -> Any:
    """The symbols in it."""
    return _none() if _plain(value) else _real("free_symbols")(value)


@_answer
def free_unbacked_symbols(value: Any) -> Any:
    """The symbols without a value in it."""
    return _none() if _plain(value) else _real("free_unbacked_symbols")(value)


@_answer
def has_free_symbols(value: Any) -> Any:
    """Is any symbol in it?"""
    return False if _plain(value) else _real("has_free_symbols")(value)


@_answer
def has_free_unbacked_symbols(value: Any) -> Any:
    """Is any symbol without a value in it?"""
    return False if _plain(value) else _real("has_free_unbacked_symbols")(value)


@_answer
def _iterate_exprs(value: Any) -> Iterator[Any]:
    """The expressions in it."""
    return iter(()) if _plain(value) else _real("_iterate_exprs")(value)


@_answer
def _iterate_nodes(value: Any) -> Iterator[Any]:
    """The symbols in it."""
    return iter(()) if _plain(value) else _real("_iterate_nodes")(value)


@_answer
def compute_unbacked_bindings(shape_env: Any, *arguments: Any, **options: Any) -> Any:
    """Where symbols without a value came from; there are none without an environment of theirs."""
    return None if shape_env is None else _real("compute_unbacked_bindings")(shape_env, *arguments, **options)


def _sizes(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(type(size) is int for size in value)


def _none() -> Any:
    from torch.utils._ordered_set import OrderedSet

    return OrderedSet()
