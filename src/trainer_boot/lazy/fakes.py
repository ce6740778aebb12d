"""torch._subclasses.fake_tensor, for who only asks whether something is a fake tensor.

As long as that module's body has not run there is no class FakeTensor, and nothing is one. Whatever else is wanted of it
is the module's own.
"""

import sys
from importlib import import_module
from typing import Any

REAL = "torch._subclasses.fake_tensor"


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        real = getattr(sys.modules.get(REAL), "FakeTensor", None)
        return real is not None and isinstance(value, real)


class FakeTensor(metaclass=_Kind):
    """Stands for the real one in `isinstance`, and for a type that nothing has."""


def is_fake_tensor(value: object) -> bool:
    """Is it one, of Python's kind or of C++'s?"""
    real = getattr(sys.modules.get(REAL), "is_fake_tensor", None)
    if real is not None:
        return bool(real(value))
    torch: Any = sys.modules["torch"]
    return isinstance(value, torch.Tensor) and torch._C._is_fake_tensor(value)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # the import machinery's questions are about this module
        raise AttributeError(name)
    return getattr(import_module(REAL), name)
