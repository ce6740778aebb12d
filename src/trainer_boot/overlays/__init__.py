"""What only the compiler needs stays away until the compiler is wanted.

An overlay changes a function of torch, right after the module that holds it was executed, so that the function does for
eager training what it always does, without the import of a thousand modules that only matter to torch.compile. It keeps
the function object and exchanges its code (or fills a cache that the function has), so each change can be taken back
without a trace; all of them are, the moment that anything imports torch._dynamo, before its first line runs: the
compiler sees torch as its authors wrote it. torch.compile, torch.export and FakeTensorMode all begin with that import.

Each overlay compares what it finds with the digest of what it was written for, and steps aside with a reason where that
is something else.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from trainer_boot.overlays.changes import Restore, all_of
from trainer_boot.overlays.known import Unknown, need_torch

COMPILER = "torch._dynamo"
SYMBOLIC = "torch.fx.experimental.symbolic_shapes"

Put = Callable[[ModuleType], Restore]


class Overlay:
    """One change: `function` ("module:function" in this package) is called with the module named `after` once its body
    has run, and gives what takes the change back when one of the modules `until` is wanted."""

    def __init__(self, name: str, after: str, function: str, until: tuple[str, ...] = (COMPILER,)) -> None:
        self.name = name
        self.after = after
        self.until = until
        self.note: dict[str, object] = {"name": name, "state": "waiting", "why": f"{after} is not imported yet"}
        self._function = function
        self._restore: Restore = all_of([])

    def put_on(self, module: ModuleType) -> None:
        """Makes the change, or steps aside with the reason. Nothing but the change can come of it."""
        if self.note["state"] != "waiting":
            return
        try:
            need_torch(str(import_module("torch.version").__version__))
            room, name = self._function.split(":")
            put: Put = getattr(import_module(f"{__name__}.{room}"), name)
            self._restore = put(module)
        except Unknown as error:
            self.note.update(state="aside", why=str(error))
        except Exception as error:  # whatever a changed torch leads to, the import must go on
            self.note.update(state="aside", why=f"{type(error).__name__}: {error}")
        else:
            self.note.update(state="on", why="")

    def step_aside(self, why: str) -> None:
        """Takes the change back."""
        if self.note["state"] != "aside":
            self.note.update(state="aside", why=why)
            self._restore()


def _all() -> list[Overlay]:
    both = (COMPILER, SYMBOLIC)
    return [
        Overlay("operators' source", "torch._library.utils", "sources:place"),
        Overlay("operators' caller", "torch.library", "sources:caller"),
        Overlay("checks of sizes", "torch", "shapes:checks", both),
        Overlay("sizes of gradients", "torch.autograd", "shapes:gradients", both),
        Overlay("optimizers' methods", "torch.optim.optimizer", "disabled:optimizers"),
        Overlay("optimizers' steps", "torch.optim", "grad_mode:steps"),
        Overlay("DDP's forward", "torch.nn.parallel.distributed", "disabled:ddp_forward"),
        Overlay("DDP's reducer", "torch.nn.parallel.distributed", "reducer_mode:initializer"),
        Overlay("torch.load", "torch._weights_only_unpickler", "loadable:names"),
        Overlay("submodules", "torch", "submodules:packages"),
        Overlay("checkpointing", "torch.utils.checkpoint", "disabled:checkpointing"),
    ]


_installed: list[Overlay] = []
_note: dict[str, object] = {}


def install() -> dict[str, object]:
    """Puts the overlays on, each when its module is imported; the layer's note, whose list `overlays` is kept true."""
    if _installed and _note["state"] == "on":
        return _note
    _note.clear()
    _note.update(layer="overlays", state="aside", why="torch._dynamo is imported already", overlays=[])
    if COMPILER in sys.modules:
        return _note
    from trainer_boot.overlays.watch import Watcher

    _installed[:] = _all()
    _note.update(state="on", why="until torch._dynamo is wanted", overlays=[each.note for each in _installed])
    for each in _installed:
        module = sys.modules.get(each.after)
        if module is not None:
            each.put_on(module)
    awaited = {each.after for each in _installed if each.note["state"] == "waiting"}
    sys.meta_path.insert(0, Watcher(awaited, _executed, {COMPILER, SYMBOLIC}, _wanted))
    return _note


def step_aside(why: str = "asked to") -> None:
    """Takes every change back; torch is as its authors wrote it."""
    from trainer_boot.overlays.watch import Watcher

    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Watcher)]
    _take_back(why)


def _take_back(why: str) -> None:
    for each in reversed(_installed):
        each.step_aside(why)
    if _note:
        _note.update(state="aside", why=why)


def _executed(module: ModuleType) -> None:
    for each in _installed:
        if each.after == module.__name__:
            each.put_on(module)


def _wanted(name: str) -> None:
    why = f"{name} is wanted"
    lazy = sys.modules.get("trainer_boot.lazy")
    if name == COMPILER:
        if lazy is not None:  # the modules that wait come while the changes make that cheaper
            lazy.flush(why)
        # the watcher stays: importlib is going through sys.meta_path right now, and would miss the finder after it
        _take_back(why)
    else:
        for each in _installed:
            if name in each.until:
                each.step_aside(why)
