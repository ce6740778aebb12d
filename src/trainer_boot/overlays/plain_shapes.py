"""What torch.fx.experimental.symbolic_shapes says of plain numbers, without sympy; of all else it is asked itself."""

from importlib import import_module
from typing import Any

_SYMBOLIC = "torch.fx.experimental.symbolic_shapes"


def expect_true(value: Any, skip: int = 0) -> Any:
    """The value itself, where it is a bool. A symbol remembers who asked: one frame more for this one."""
    return value if type(value) is bool else import_module(_SYMBOLIC).expect_true(value, skip + 1)


def sym_eq(left: Any, right: Any) -> Any:
    """Are two sizes equal?"""
    if _plain(left) and _plain(right):
        return tuple(left) == tuple(right)
    return import_module(_SYMBOLIC).sym_eq(left, right)


def _plain(sizes: Any) -> bool:
    return isinstance(sizes, tuple) and all(type(size) is int for size in sizes)
