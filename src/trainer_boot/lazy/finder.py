"""The finder: defers the known modules, hears of what needs all of them, and tells when a module was executed."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trainer_boot.lazy.modules import Deferred, Waiting
from trainer_boot.overlays.watch import Awaited
from trainer_boot.wrapped import Wrapped

Executed = Callable[[ModuleType], None]


class LazyFinder:
    """On sys.meta_path before the finders that find.

    `names` may wait, if `accept` says so of the spec. `awaited`: called with the module once its body has run. `alone`
    says which may be imported though their packages wait. `allowed`, once torch is imported: all of torch that may be
    imported without running the bodies before.
    """

    def __init__(
        self,
        waiting: Waiting,
        names: frozenset[str],
        alone: Callable[[str], bool],
        accept: Callable[[ModuleSpec], bool],
        awaited: Mapping[str, Executed],
    ) -> None:
        self.allowed: frozenset[str] | None = None
        self._waiting = waiting
        self._names = names
        self._alone = alone
        self._accept = accept
        self._awaited = dict(awaited)
        self._seen: set[str] = set()
        self._asked: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of a module that is deferred, awaited, or whose body is to run now; else None."""
        if name in self._asked:  # by a finder that goes through the finders too
            return None
        waiting = self._waiting
        if waiting.whole:
            return None
        if waiting.running_here:
            return waiting.spec(name)
        if self._needs_all(name) or waiting.spec(name) is not None:
            waiting.bring_while_importing(name)
            there = sys.modules.get(name)
            return waiting.spec(name) if there is None or there is target else _there(there)
        if name in self._awaited:
            return self._changed(name, path, lambda loader: Awaited(loader, self._awaited.pop(name)))
        if name in self._names and name not in self._seen and target is None:
            self._seen.add(name)
            return self._changed(name, path, lambda loader: _Deferring(loader, waiting))
        return None

    def _needs_all(self, name: str) -> bool:
        if self._alone(name):
            return False
        if self.allowed is not None and name.startswith("torch.") and name not in self.allowed:
            return True
        return name not in self._names and type(sys.modules.get(name.rpartition(".")[0])) is Deferred

    def _changed(self, name: str, path: Sequence[str] | None, change: Callable[[Any], Any]) -> ModuleSpec | None:
        """What the other finders say, with another loader."""
        self._asked.add(name)
        try:
            found = (
                each.find_spec(name, path, None)
                for each in sys.meta_path
                if each is not self and hasattr(each, "find_spec")
            )
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            self._asked.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module") and (name not in self._names or self._accept(spec)):
            spec.loader = change(spec.loader)
        return spec


class _Deferring(Wrapped):
    def __init__(self, loader: Any, waiting: Waiting) -> None:
        super().__init__(loader)
        self._waiting = waiting

    def exec_module(self, module: ModuleType) -> None:
        """Not now; where the bodies have come meanwhile, now."""
        self.give_back(module)
        if self._waiting.whole or type(module) is not ModuleType:
            self._loader.exec_module(module)
        else:
            self._waiting.defer(module)


def _there(module: ModuleType) -> ModuleSpec | None:
    """A spec that finds a module which was imported while it was looked for: its own, since importlib takes that."""
    spec = module.__spec__
    if spec is not None:
        spec.loader = _There(module, spec.loader)  # type: ignore[assignment]  # by duck typing
    return spec


class _There:
    def __init__(self, module: ModuleType, loader: Any) -> None:
        self._module = module
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The one that is there."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it has run."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
