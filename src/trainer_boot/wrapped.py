"""A loader in the place of another one, for a module whose body is to run otherwise, or later."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class Wrapped:
    """As the other in everything but `exec_module`, which who inherits defines."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the other."""
        return self._loader.create_module(spec)  # type: ignore[no-any-return]  # a loader's

    def give_back(self, module: ModuleType) -> None:
        """The module has the loader that it would have."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
