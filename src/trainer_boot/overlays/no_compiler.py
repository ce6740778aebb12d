"""torch._dynamo as it answers where nothing is compiled, for the few functions of torch that ask it from eager code.

A stand-in for that package: it is what `torch` has by the name STAND_IN, and what renamed imports find. Each answer is
what the package itself would give before anybody changed a setting of it or compiled anything; nobody can have done
either before it is imported. Once it is there, and for whatever else is asked, the package itself answers.
"""

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import FunctionType
from typing import Any
from weakref import WeakSet

from trainer_boot.overlays.changes import Restore, exchange, renamed

COMPILER = "torch._dynamo"
HERE = "trainer_boot.overlays.no_compiler"
STAND_IN = "_dynamo_or_its_defaults"
KEPT = "__dynamo_disable"

_kept: WeakSet[FunctionType] = WeakSet()


class _Compiled(type):
    def __instancecheck__(cls, instance: object) -> bool:
        real = getattr(sys.modules.get(COMPILER), "OptimizedModule", None)
        return real is not None and isinstance(instance, real)


class NotCompiled(metaclass=_Compiled):
    """The class of what torch.compile makes of modules."""


class _Evaluation:
    """torch._dynamo.eval_frame."""

    OptimizedModule = NotCompiled


class _Utilities:
    """torch._dynamo.utils, as far as DDP asks."""

    @staticmethod
    def get_optimize_ddp_mode() -> str:
        """Who reduces gradients under the compiler: the default."""
        return "ddp_optimizer"


class _Settings:
    """torch._dynamo.config. What it takes from the environment is read when it is first asked for, and stays."""

    fake_tensor_cache_enabled: bool
    fake_tensor_cache_crosscheck_enabled: bool
    error_on_nested_fx_trace = True
    _custom_ops_profile = None

    def __getattr__(self, name: str) -> Any:
        if name == "fake_tensor_cache_enabled":
            found: Any = os.environ.get("TORCH_FAKE_TENSOR_DISPATCH_CACHE", "1") == "1"
        elif name == "fake_tensor_cache_crosscheck_enabled":
            found = os.environ.get("TORCH_FAKE_TENSOR_DISPATCH_CACHE_CROSSCHECK", "0") == "1"
        else:
            return getattr(import_module("torch._dynamo.config"), name)
        setattr(self, name, found)
        return found


def _disable(fn: Any = None, *arguments: Any, **options: Any) -> Any:
    """The function itself: there is no compiler to keep from looking into it."""
    if fn is None or COMPILER in sys.modules:
        return import_module(COMPILER).disable(fn, *arguments, **options)
    if options.get("wrapping") is False and isinstance(fn, FunctionType):
        _kept.add(fn)  # the one who asks, torch._compile, keeps the answer as an attribute of the function
    return fn


def _disable_nested_graph_breaks() -> AbstractContextManager[None]:
    return nullcontext()


class _Source:
    """What the compiler remembers of where a tensor came from: none has one yet."""


_SOURCES = ("CallMethodItemSource", "FloatTensorSource", "RandomValueSource")
_answers = {
    **dict.fromkeys(_SOURCES, _Source),
    "OptimizedModule": NotCompiled,
    "config": _Settings(),
    "disable": _disable,
    "disable_nested_graph_breaks": _disable_nested_graph_breaks,
    "eval_frame": _Evaluation,
    "utils": _Utilities,
}


def __getattr__(name: str) -> Any:
    if COMPILER not in sys.modules and name in _answers:
        return _answers[name]
    if name[:2] == name[-2:] == "__":  # what importlib asks of every module
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{COMPILER}.source" if name in _SOURCES else COMPILER), name)


def asked_by(function: FunctionType, names: dict[str, str] | None = None) -> Restore:
    """The function asks `torch.STAND_IN` for `torch._dynamo`, and by other names what else `names` says."""
    return exchange(function, renamed(function.__code__, asked(names)))


def asked(names: dict[str, str] | None = None) -> dict[str, str]:
    """What is to be renamed for that; the stand-in is there then. It stays, for a call may still be under way when the
    change is taken back."""
    setattr(sys.modules["torch"], STAND_IN, sys.modules[__name__])
    return {"_dynamo": STAND_IN, **(names or {})}


def forget() -> None:
    """Takes away what torch._compile has kept of the answers."""
    for fn in list(_kept):
        if vars(fn).get(KEPT) is fn:
            delattr(fn, KEPT)
    _kept.clear()
