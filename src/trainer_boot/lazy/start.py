"""The start with waiting modules: from the first import of torch to the end of its body, and what comes after."""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trainer_boot import accelerators, overlays
from trainer_boot.lazy import fakes, hooks
from trainer_boot.lazy.finder import Executed, LazyFinder
from trainer_boot.lazy.known import unknown_build, unknown_source
from trainer_boot.lazy.modules import NOTHING, Waiting, dictionary
from trainer_boot.lazy.names import LATE, Late, serve
from trainer_boot.lazy.table import ALLOWED, ALONE, BROUGHT, CACHE, DEFERRED, ON_ACCELERATORS
from trainer_boot.overlays.watch import Watcher

PACKAGE = __name__.rpartition(".")[0]


class Start:
    """One start: what may wait, and what is answered meanwhile."""

    def __init__(self, waiting: Waiting, note: dict[str, object], check: str) -> None:
        self.waiting = waiting
        self.names: list[str] = []
        self._note = note
        self._check = check
        self._unknown: str | None = None
        self._late = {name: Late(waiting, name) for name in LATE}
        self._cache: dict[Any, Any] = {}

    def put_on(self) -> None:
        """Puts the finder on."""
        accelerated = accelerators.present()  # on one, torch's kernels in Python compute
        names = frozenset(name for name in DEFERRED if not (accelerated and name in ON_ACCELERATORS))
        awaited: dict[str, Executed] = {name: late.executed for name, late in self._late.items()}
        awaited["torch"] = self._torch_executed
        self.waiting.known = self._known
        self.waiting.finish[CACHE[0]] = self._keep_cache
        self.waiting.before.append(self._tell)
        self._finder = LazyFinder(self.waiting, names, _alone, self._accept, awaited)
        sys.meta_path.insert(0, self._finder)

    def _accept(self, spec: ModuleSpec) -> bool:
        """May this module wait? The first is asked for all: none may, unless each is the known one."""
        if self._unknown is None:
            try:
                version = import_module("torch.version")
                root = sys.modules["torch"].__path__[0]
                self._unknown = unknown_build(version) or unknown_source(root, self._check)
            except Exception as error:  # whatever a changed torch leads to, the import must go on
                self._unknown = f"{type(error).__name__}: {error}"
            if self._unknown:
                self._note.update(state="aside", why=self._unknown)
        if not self._unknown:
            self.names.append(spec.name)
        return not self._unknown

    def _tell(self) -> None:
        """All bodies come: the layer is of no use any more."""
        if self._note["state"] == "on":
            self._note.update(state="aside", why=self.waiting.touched[-1]["why"])

    def _known(self, module: str, name: str) -> Any:
        """While torch is imported: stand-ins for names that it takes, and a cache that its libraries hold on to."""
        if (module, name) == CACHE:
            return self._cache
        importer = _asking()
        late = self._late.get(importer)
        found = late.stand_in(module, name) if late else None
        return NOTHING if found is None else found

    def _bring_checkpoint(self, name: str) -> None:
        self.waiting.bring(f"torch.utils.{name} is wanted", "torch.utils", name)

    def _keep_cache(self, module: ModuleType) -> None:
        """The cache that was given away is the module's."""
        name = CACHE[1]
        if dictionary(module).get(name) == {}:
            dictionary(module)[name] = self._cache

    def _torch_executed(self, torch: ModuleType) -> None:
        self._late["torch"].executed(torch)
        if self.waiting.whole or self._unknown:
            return
        try:
            for name in BROUGHT:
                import_module(name)
            hooks.put_on(torch, self.waiting)
            if not any(isinstance(finder, Watcher) for finder in sys.meta_path):  # else an overlay serves it
                self.waiting.before.append(serve(torch.utils, frozenset(("checkpoint",)), self._bring_checkpoint))
        except Exception as error:  # as above: without its hooks, no module may wait
            self.waiting.bring(f"{type(error).__name__}: {error}")
        self.waiting.known = _known_later
        self._finder.allowed = ALLOWED


def _alone(name: str) -> bool:
    return name in ALONE or (name.startswith("torch.fx.experimental.") and overlays.defers(name))


def _known_later(module: str, name: str) -> Any:
    """Once torch is imported: what torch._tensor wants of torch._subclasses to know a FakeTensor by."""
    if (f"{module}.{name}") == fakes.REAL and _asking() == "torch._tensor":
        return fakes
    return NOTHING


def _asking() -> str:
    """The module whose code touches one that waits."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith((PACKAGE, "importlib", "_frozen")):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))
