"""torch.fx.experimental.symbolic_shapes comes when a size is a symbol, and sympy with it.

A hundred and fifty functions of torch import it to compare sizes (`torch._check`, given gradients, DTensor, FakeTensor,
the operators in Python), and modules of DTensor when they are imported. Until something of it is wanted that
`plain_shapes` cannot answer, or somebody other than torch asks, the module is there without its content. Then it is
executed, and every module of torch that took an answer of `plain_shapes` for its own gets the real function instead.

Known by the digest of its source, the same for every Python. Cost without: 484 modules and 0.3 s of CPU time.
"""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from threading import RLock
from types import ModuleType
from typing import Any

from trainer_boot.overlays.changes import Restore, rebind
from trainer_boot.overlays.known import Unknown, need_source, need_torch
from trainer_boot.overlays.plain_shapes import ANSWERS, GuardOnDataDependentSymNode
from trainer_boot.wrapped import Wrapped

NAME = "torch.fx.experimental.symbolic_shapes"
SOURCE = "9a765ee905f4e514"
# the error as a class: for those that only name it in an `except` around what raises no other of that name
CATCHING = {
    "GuardOnDataDependentSymNode": ("torch.distributed.tensor._decompositions", "torch._subclasses.fake_tensor"),
}
_STAND_INS: dict[str, Any] = {**ANSWERS, "GuardOnDataDependentSymNode": GuardOnDataDependentSymNode}
_lock = RLock()
_own: Callable[[ModuleType], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__


class _Content:
    """What a deferred module still lacks, and how to get it."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.loading = False
        self.answers = True  # False: whatever is wanted, the real one


class Deferred(ModuleType):
    """A module that is executed when more is wanted of it than plain answers; an ordinary one from then on."""

    def __getattr__(self, name: str) -> Any:
        content = _contents.get(_own(self)["__name__"])
        if content is not None and not content.loading:
            if name[:2] == name[-2:] == "__" and name != "__all__":
                raise AttributeError(f"module {_own(self)['__name__']!r} has no attribute {name!r}")
            if content.answers and _may_have(name, str(sys._getframe(1).f_globals.get("__name__"))):
                return _STAND_INS[name]
        _complete(self)
        if type(self) is ModuleType:
            return getattr(self, name)
        raise AttributeError(f"module {_own(self)['__name__']!r} has no attribute {name!r} yet")

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name[:2] == name[-2:] == "__"):
            _complete(self)
        ModuleType.__setattr__(self, name, value)  # not super(): by now it may be of no other class

    def __dir__(self) -> list[str]:
        _complete(self)
        return sorted(_own(self))

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """With everything in it."""
        _complete(self)
        return _own(self)


_contents: dict[str, _Content] = {}


class _Loader(Wrapped):
    """Another loader, whose module waits for its content."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty one."""
        return Deferred(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leaves it empty; the module gets back the loader that it would have."""
        self.give_back(module)
        _contents[module.__name__] = _Content(self._loader)


def deferred(spec: ModuleSpec) -> Restore:
    """Of torch.fx.experimental.symbolic_shapes, before it is imported."""
    if spec.origin is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
        raise Unknown(f"{spec.name} comes from nowhere")
    need_source(spec.origin, SOURCE)
    spec.loader = _Loader(spec.loader)  # type: ignore[assignment]  # by duck typing

    def restore() -> None:
        """What is wanted from now on is the real thing; wanted by the compiler, it is executed soon."""
        if spec.name in _contents:
            _contents[spec.name].answers = False

    return restore


def known(version: str) -> bool:
    """Would `deferred` do so, in torch of that version?"""
    place = f"{sys.modules['torch'].__path__[0]}/{NAME.partition('.')[2].replace('.', '/')}.py"
    try:
        need_torch(version)
        need_source(place, SOURCE)
    except Unknown:
        return False
    return True


def _may_have(name: str, asking: str) -> bool:
    """Is there an answer by that name for the module that asks?"""
    if name in CATCHING:
        return asking in CATCHING[name]
    return name in _STAND_INS and (asking == "torch" or asking.startswith("torch."))


def _complete(module: ModuleType) -> None:
    """Executes it, unless that is done or under way in this thread."""
    name = _own(module)["__name__"]
    lazy = sys.modules.get("trainer_boot.lazy")
    if lazy is not None and name in _contents and not _contents[name].loading:
        lazy.flush(f"{name} is wanted")  # it imports modules that wait, and they import it
    with _lock:
        content = _contents.get(name)
        if content is None or content.loading:
            return
        content.loading = True
        try:
            content.loader.exec_module(module)
        except BaseException:
            content.loading = False
            raise
        module.__class__ = ModuleType
        del _contents[name]
        rebind(_STAND_INS, module)
