"""torch._subclasses.fake_tensor, for who only asks whether something is a fake tensor.

As long as that module's body has not run there is no class FakeTensor, and nothing is one. Whatever else is wanted of
it is the module's own.
"""

import sys
from importlib import import_module
from typing import Any

REAL = "torch._subclasses.fake_tensor"


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        real = getattr(sys.modules.get(REAL), cls.__name__, None)
        return real is not None and isinstance(value, real)


class FakeTensor(metaclass=_Kind):
    """Stands for the real one in `isinstance`, and for a type that nothing has."""


class FakeTensorMode(metaclass=_Kind):
    """The same for the mode in which tensors are fake."""


def get_plain_tensors(*arguments: Any, **options: Any) -> Any:
    """Asked about wrapped tensors only: the real one."""
    return import_module(REAL).get_plain_tensors(*arguments, **options)


def maybe_get_fake_mode(value: object) -> Any:
    """Asked about fake tensors only: the real one."""
    return import_module(REAL).maybe_get_fake_mode(value)


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
