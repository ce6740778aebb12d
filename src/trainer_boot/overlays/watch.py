"""A finder that finds nothing itself: it tells when a module was executed, and when one is about to be imported."""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trainer_boot.wrapped import Wrapped


class Watcher:
    """At the front of sys.meta_path. `found` is called with the spec of each module of `awaited`, `executed` with the
    module once its body has run, `wanted` with each name of `triggers` before the module is looked for. No other import
    notices it."""

    def __init__(
        self,
        awaited: set[str],
        found: Callable[[ModuleSpec], None],
        executed: Callable[[ModuleType], None],
        triggers: set[str],
        wanted: Callable[[str], None],
    ) -> None:
        self._awaited = awaited
        self._found = found
        self._executed = executed
        self._triggers = triggers
        self._wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders say, for a module that is awaited; else None."""
        if name in self._triggers:
            self._wanted(name)
        if name not in self._awaited:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    self._found(spec)
                    spec.loader = Awaited(spec.loader, self._done)  # type: ignore[assignment]  # by duck typing
                return spec
        return None

    def _done(self, module: ModuleType) -> None:
        self._awaited.discard(module.__name__)
        self._executed(module)


class Awaited(Wrapped):
    """Another loader, which the module gets back before its body runs."""

    def __init__(self, loader: Any, done: Callable[[ModuleType], None]) -> None:
        super().__init__(loader)
        self._done = done

    def exec_module(self, module: ModuleType) -> None:
        """As the other; then says so."""
        self.give_back(module)
        self._loader.exec_module(module)
        self._done(module)
