"""What only the compiler needs stays away until the compiler is wanted.

An overlay changes a function of torch, right after the module that holds it was executed, so that the function does for
eager training what it always does, without the import of a thousand modules that only matter to torch.compile. It keeps
the function object and exchanges its code (or fills a cache that the function has), so each change can be taken back
without a trace; all of them are, the moment that anything imports torch._dynamo, before its first line runs: the
compiler sees torch as its authors wrote it. torch.compile and torch.export begin with that import.

Each overlay compares what it finds with the digest of what it was written for, and steps aside with a reason where that
is something else.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trainer_boot.overlays.changes import Restore, all_of, rebind
from trainer_boot.overlays.known import Unknown, need_torch

COMPILER = "torch._dynamo"

Put = Callable[[Any], Restore]


class Overlay:
    """One change: `function` ("module:function" in this package) is called with the module named `of` once its body
    has run (or, where it is to change how that runs, `before` it does, with the module's spec), and gives what takes
    the change back when torch._dynamo is wanted."""

    def __init__(self, name: str, of: str, function: str, before: bool = False) -> None:
        self.name = name
        self.of = of
        self.before = before
        self.note: dict[str, object] = {"name": name, "state": "waiting", "why": f"{of} is not imported yet"}
        self._function = function
        self._restore: Restore = all_of([])

    def put_on(self, subject: ModuleType | ModuleSpec) -> None:
        """Makes the change, or steps aside with the reason. Nothing but the change can come of it."""
        # a spec may be looked for without being imported, and then again
        if self.note["state"] != "waiting" and not (self.before and self.note["state"] == "on"):
            return
        try:
            need_torch(str(import_module("torch.version").__version__))
            room, name = self._function.split(":")
            put: Put = getattr(import_module(f"{__name__}.{room}"), name)
            self._restore = put(subject)
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
    fsdp = "torch.distributed.fsdp._fully_shard._fsdp_common"
    return [
        Overlay("disabled functions", "torch._compile", "disabled:functions"),
        Overlay("symbolic shapes", "torch.fx.experimental.symbolic_shapes", "symbols:deferred", before=True),
        Overlay("operators' source", "torch._library.utils", "sources:place"),
        Overlay("operators' caller", "torch.library", "sources:caller"),
        Overlay("CUDA's driver", "cuda.bindings.driver", "bindings:waiting", before=True),
        Overlay("CUDA's runtime", "cuda.bindings.runtime", "bindings:waiting", before=True),
        Overlay("operators' data classes", "torch._library.autograd", "same_class:data_classes"),
        Overlay("overloads", "torch._jit_internal", "overloads:bodies"),
        Overlay("optimizers' steps", "torch.optim", "grad_mode:steps"),
        Overlay("DDP's reducer", "torch.nn.parallel.distributed", "reducer_mode:initializer"),
        Overlay("torch.load", "torch._weights_only_unpickler", "loadable:names"),
        Overlay("submodules", "torch", "submodules:packages"),
        Overlay("checkpointing", "torch.utils.checkpoint", "recompute:checkpointing"),
        Overlay("fake tensors", "torch._subclasses.fake_tensor", "fake:modes"),
        Overlay("operators in Python", "torch._prims_common", "fake:operators"),
        Overlay("FSDP's hooks", fsdp, "disabled:hooks"),
        Overlay("submeshes", "torch.distributed.device_mesh", "sharded:mesh"),
        Overlay("names in state dictionaries", "torch.distributed.checkpoint.state_dict", "sharded:state"),
        Overlay("schedules", "torch.distributed.pipelining.schedules", "sharded:schedules", before=True),
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
        module = sys.modules.get(each.of)
        if module is not None and each.before:
            each.step_aside(f"{each.of} is imported already")
        elif module is not None:
            each.put_on(module)
    awaited = {each.of for each in _installed if each.note["state"] == "waiting"}
    sys.meta_path.insert(0, Watcher(awaited | {COMPILER}, _found, _executed, {COMPILER}, _wanted))
    return _note


def defers(name: str) -> bool:
    """Will that module of torch, when it is imported, be there without its content? It runs no line then."""
    from trainer_boot.overlays import symbols

    found = next((each for each in _installed if each.of == name == symbols.NAME), None)
    if found is None or found.note["state"] == "aside":
        return False
    return found.note["state"] == "on" or symbols.known(str(import_module("torch.version").__version__))


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


def _wanted(name: str) -> None:
    lazy = sys.modules.get("trainer_boot.lazy")
    if lazy is not None:  # the modules that wait come while the changes make that cheaper
        lazy.flush(f"{name} is wanted")
    # the watcher stays: importlib is going through sys.meta_path right now, and would miss the finder after it
    _take_back(f"{name} is wanted")


def _found(spec: ModuleSpec) -> None:
    for each in _installed:
        if each.before and each.of == spec.name:
            each.put_on(spec)


def _executed(module: ModuleType) -> None:
    if module.__name__ == COMPILER:
        from trainer_boot.overlays import no_compiler

        rebind({"OptimizedModule": no_compiler.NotCompiled}, module)
    for each in _installed:
        if not each.before and each.of == module.__name__:
            each.put_on(module)
