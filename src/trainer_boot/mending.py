"""Modules of Python's that know files only, changed as they are imported, so that they know the archive."""

from __future__ import annotations

import sys

from trainer_boot.wrapped import Wrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from trainer_boot.finder import BundleFinder


def spec_of(finder: BundleFinder, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """The spec of one of them, as the finders behind ours have it; once loaded, it is mended."""
    for each in sys.meta_path[sys.meta_path.index(finder) + 1 :]:
        spec = each.find_spec(name, path, None)
        if spec is not None:
            if spec.loader is not None:
                spec.loader = _Mending(finder, spec.loader)  # type: ignore[assignment]  # is one in all that matters
            return spec
    return None


def mend(finder: BundleFinder) -> None:
    """Changes those that are loaded."""
    lines, threads = sys.modules.get("linecache"), sys.modules.get("threading")
    spawn = sys.modules.get("multiprocessing.spawn")
    if hasattr(lines, "lazycache"):
        from trainer_boot.showing import mend_lines

        mend_lines(finder, lines)
    if sys.version_info < (3, 13) and threads is not None:
        from trainer_boot.showing import mend_threads

        mend_threads(threads)
    if hasattr(spawn, "get_preparation_data"):
        from trainer_boot.children import mend_spawn

        mend_spawn(finder.archive, spawn)


class _Mending(Wrapped):
    def __init__(self, finder: BundleFinder, loader: Any) -> None:
        super().__init__(loader)
        self._finder = finder

    def exec_module(self, module: ModuleType) -> None:
        self.give_back(module)
        self._loader.exec_module(module)
        mend(self._finder)
