"""Names that a module which is needed takes from one that waits, though nobody may ever ask for them.

`from a import b` in the body of a module that is needed would run a's body. Where b is there for others to import only,
the body gets a stand-in, which is taken out again when the body has run; who asks for b later brings all, and finds it.
"""

import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from trainer_boot.lazy.modules import NOTHING, Waiting, dictionary
from trainer_boot.overlays.changes import Restore

# the module that is needed -> name there -> (module that waits, name there)
LATE = {
    "torch": {
        "cond": ("torch._higher_order_ops", "cond"),
        "while_loop": ("torch._higher_order_ops", "while_loop"),
        "vmap": ("torch.func", "vmap"),
    },
    "torch.compiler": {
        "_SUPPORTED_NESTED_REGION_INDUCTOR_CONFIG_KEYS": (
            "torch._higher_order_ops.invoke_subgraph",
            "_SUPPORTED_NESTED_REGION_INDUCTOR_CONFIG_KEYS",
        ),
        "NestedCompileRegionOptions": ("torch._higher_order_ops.invoke_subgraph", "NestedCompileRegionOptions"),
        "PrecompileError": ("torch._precompile", "PrecompileError"),
    },
}


class StandIn:
    """A name's value while the body runs that imports it. The body may put it into an annotation, alone or as `name |
    other`, and into a docstring, as a list of code words made of what the value holds."""

    def __init__(self, name: str, others: tuple[object, ...] = ()) -> None:
        self.name = name
        self.others = others

    def __or__(self, other: object) -> "StandIn":
        return StandIn(self.name, (*self.others, other))

    def __iter__(self) -> Iterator[str]:
        return iter((f"<{self.name}>",))

    def finish(self, function: FunctionType, value: Any) -> None:
        """Puts the value where the function's body has left a stand-in."""
        for each, annotation in function.__annotations__.items():
            if isinstance(annotation, StandIn) and annotation.name == self.name:
                whole = value
                for other in annotation.others:
                    whole = whole | other
                function.__annotations__[each] = whole
        word = f"``<{self.name}>``"
        if function.__doc__ and word in function.__doc__:
            function.__doc__ = function.__doc__.replace(word, ", ".join(f"``{each}``" for each in sorted(value)))


class Late:
    """The names that one module gets late, and the functions there that were made with stand-ins for them."""

    def __init__(self, waiting: Waiting, module: str) -> None:
        self._waiting = waiting
        self._name = module
        self._names = LATE[module]
        self._absent: list[StandIn] = []
        self._unfinished: dict[str, FunctionType] = {}
        self._module: ModuleType | None = None
        self._restore: Restore = lambda: None

    def stand_in(self, place: str, name: str) -> StandIn | None:
        """For `from place import name` in the module's body."""
        if self._module is None:
            for own, origin in self._names.items():
                if origin == (place, name):
                    return StandIn(own)
        return None

    def executed(self, module: ModuleType) -> None:
        """Takes the stand-ins out of the module, and the functions that were made with them."""
        values = dictionary(module)
        self._module = module
        self._absent = [value for value in values.values() if isinstance(value, StandIn)]
        if not self._absent:
            return
        self._unfinished = {
            name: value
            for name, value in values.items()
            if isinstance(value, FunctionType)
            and any(isinstance(each, StandIn) for each in value.__annotations__.values())
        }
        names = frozenset((*self._unfinished, *(each.name for each in self._absent)))
        for name in names:
            del values[name]
        self._restore = serve(module, names, self._bring)
        if self._waiting.whole:  # the bodies came while the module's own ran
            self._come()
        else:
            self._waiting.after.append(self._come)

    def _come(self) -> None:
        assert self._module is not None
        self._restore()
        values = dictionary(self._module)
        values.update(self._unfinished)
        for absent in self._absent:
            place, name = self._names[absent.name]
            values[absent.name] = value = getattr(sys.modules[place], name)
            for function in self._unfinished.values():
                absent.finish(function, value)

    def _bring(self, name: str) -> None:
        self._waiting.bring(f"{self._name}.{name} is wanted", self._name, name)


def serve(module: ModuleType, names: frozenset[str], bring: Callable[[str], None]) -> Restore:
    """Who asks the module for one of the names, or for the list of its names, has them brought; until the result is
    called."""
    values = dictionary(module)
    before = {own: values.get(own, NOTHING) for own in ("__getattr__", "__dir__")}

    def __getattr__(name: str) -> Any:
        if name in names:
            bring(name)
            return getattr(module, name)
        if before["__getattr__"] is not NOTHING:
            return before["__getattr__"](name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        bring("__dir__")
        return sorted(values)

    ours = {"__getattr__": __getattr__, "__dir__": __dir__}
    values.update(ours)

    def restore() -> None:
        for own, function in ours.items():
            if values.get(own) is function:
                if before[own] is NOTHING:
                    del values[own]
                else:
                    values[own] = before[own]

    return restore
