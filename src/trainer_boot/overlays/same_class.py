"""For each operator in Python that is registered, torch makes a data class of the same two fields.

`dataclass` writes and compiles its methods anew each time, for 113 operators while torch is imported. The classes after
the first one get the methods of the first, which are the same. Cost without: 25 ms of CPU time.
"""

import dataclasses
from types import ModuleType
from typing import Any

from trainer_boot.overlays.changes import Restore
from trainer_boot.overlays.known import Unknown, need_function

MAKER = {"3.11": "0183b8f022158b63", "3.12": "de6dd51314794afb", "3.13": "81c66e68019ed5d9"}
# what each class has of its own
OWN = ("__module__", "__qualname__", "__annotations__", "__dict__", "__weakref__", "__static_attributes__")


def data_classes(module: ModuleType) -> Restore:
    """Of torch._library.autograd."""
    need_function(module, "make_autograd_impl", MAKER)
    original = vars(module).get("dataclass")
    if original is not dataclasses.dataclass:
        raise Unknown(f"{module.__name__}.dataclass is not the standard library's")
    first: list[type] = []

    def dataclass(cls: type) -> type:
        if not first or not _same(first[0], cls):
            first[:] = [dataclasses.dataclass(cls)]
            return cls
        for name, value in vars(first[0]).items():
            if name not in OWN and vars(cls).get(name, OWN) is not value:
                setattr(cls, name, value)
        return cls

    changed: Any = module
    changed.dataclass = dataclass

    def restore() -> None:
        if vars(module).get("dataclass") is dataclass:
            changed.dataclass = original

    return restore


def _same(made: type, cls: type) -> bool:
    """Would `dataclass` make of the one what it has made of the other?"""
    return (
        made.__name__ == cls.__name__
        and made.__qualname__ == cls.__qualname__
        and made.__bases__ == cls.__bases__ == (object,)
        and list(made.__annotations__.items()) == list(cls.__annotations__.items())
        and set(vars(cls)) <= {*OWN, "__doc__", "__firstlineno__"}
    )
