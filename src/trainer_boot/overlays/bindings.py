"""CUDA's Python bindings run when something of them is wanted.

torch imports cuda.bindings.driver and .runtime for CUDA graphs and a few texts of errors. Here their libraries are
opened and their modules made as ever, but the bodies wait. Where a body would fail, torch means to go without; so they
wait only if the snapshot says that this very environment has imported them before. Cost without: 30 ms of CPU time,
sixty modules, and a process (`ldconfig`).
"""

import sys
from importlib.machinery import ModuleSpec
from threading import RLock
from types import ModuleType
from typing import Any

from trainer_boot.overlays.changes import Restore
from trainer_boot.overlays.known import Unknown
from trainer_boot.wrapped import Wrapped

# set before the body runs, by the import machinery and by whoever makes the module
SET_BEFORE = frozenset(
    ("__name__", "__spec__", "__path__", "__loader__", "__file__", "__package__", "__doc__", "__class__", "__cached__")
)
_lock = RLock()
_own = ModuleType.__getattribute__


class Waiting(ModuleType):
    """A module whose body runs at the first question for what it would have made."""

    def __getattribute__(self, name: str) -> Any:
        if name not in SET_BEFORE:
            run(self)
        return _own(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in SET_BEFORE:
            run(self)
        ModuleType.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        run(self)
        ModuleType.__delattr__(self, name)


_loaders: dict[int, Any] = {}


class _Loader(Wrapped):
    """Another loader, whose modules wait."""

    def exec_module(self, module: ModuleType) -> None:
        """Not now; the module gets back the loader that it would have."""
        self.give_back(module)
        if type(module) is not ModuleType:
            self._loader.exec_module(module)
            return
        _loaders[id(module)] = self._loader
        module.__class__ = Waiting


def waiting(spec: ModuleSpec) -> Restore:
    """Of cuda.bindings.driver or .runtime, before it is imported."""
    from trainer_boot.snapshot_serving import running

    finder = running()
    if finder is None or spec.name not in finder.extensions:
        raise Unknown("no snapshot says that it can be imported here")
    spec.loader = _Loader(spec.loader)  # type: ignore[assignment]  # by duck typing

    def restore() -> None:
        """Runs the body, if it waits."""
        module = sys.modules.get(spec.name)
        if type(module) is Waiting:
            run(module)

    return restore


def run(module: ModuleType) -> None:
    """The body, unless it has run or this thread is at it."""
    with _lock:
        loader = _loaders.pop(id(module), None)
        if loader is None:
            return
        try:
            loader.exec_module(module)
        except BaseException as error:
            _loaders[id(module)] = loader
            if isinstance(error, AttributeError):  # else it would look as if what was wanted were missing
                raise ImportError(f"{_own(module, '__name__')} failed: {error}") from error
            raise
        module.__class__ = ModuleType
