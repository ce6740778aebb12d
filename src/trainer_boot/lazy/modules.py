"""Modules whose bodies have not run yet, and the one act that runs the bodies of all of them.

All or nothing: whoever touches one brings all, in the order in which they were imported, through Python's own import
machinery. So there are two states only, and the second is that of a plain start.
"""

import _imp
import sys
from _frozen_importlib import (  # type: ignore[attr-defined]  # importlib's own locks
    _DeadlockError,
    _module_locks,
    _ModuleLockManager,
)
from _thread import get_ident
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

LOCK = f"{__name__}: the bodies"
ATTEMPTS = 100
# what the import machinery has set before a body runs, and reads and sets itself
SET_BEFORE = frozenset(
    ("__name__", "__spec__", "__path__", "__loader__", "__file__", "__package__", "__cached__", "__class__")
)
NOTHING = object()

space = ModuleType.__getattribute__


class Deferred(ModuleType):
    """Reads and writes of anything that a body could have made run the bodies first."""

    def __getattribute__(self, name: str) -> Any:
        if name in SET_BEFORE:
            return space(self, name)
        known = _touch(self, name)
        return space(self, name) if known is NOTHING else known

    def __setattr__(self, name: str, value: object) -> None:
        if name not in SET_BEFORE and not _is_child(self, name, value):
            _touch(self, name)
        ModuleType.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        _touch(self, name)
        ModuleType.__delattr__(self, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        _touch(self, "__reduce_ex__")
        return object.__reduce_ex__(self, protocol)


def _is_child(module: ModuleType, name: str, value: object) -> bool:
    """The import machinery puts a submodule into its package."""
    return isinstance(value, ModuleType) and sys.modules.get(f"{space(module, '__name__')}.{name}") is value


def dictionary(module: ModuleType) -> dict[str, Any]:
    """A module's names, without waking it."""
    found: dict[str, Any] = space(module, "__dict__")
    return found


_held: "dict[int, Waiting]" = {}


def _touch(module: ModuleType, name: str) -> Any:
    waiting = _held.get(id(module))
    return NOTHING if waiting is None else waiting.touch(module, name)


class Waiting:
    """The modules that wait, and what is done around their coming."""

    def __init__(self) -> None:
        self.modules: dict[str, ModuleType] = {}  # in the order in which they were imported
        self.whole = False  # nothing waits any more
        self.touched: list[dict[str, str]] = []
        self.before: list[Callable[[], None]] = []  # the last one first, before the first body runs
        self.after: list[Callable[[], None]] = []
        self.known: Callable[[str, str], Any] = lambda module, name: NOTHING  # answers without a body
        self.finish: dict[str, Callable[[ModuleType], None]] = {}  # once a module's body has run
        self._taken: set[str] = set()  # out of sys.modules, so that importing them runs them
        self._begun: dict[str, int] = {}  # module -> the thread that runs its body
        self._done: set[str] = set()
        self._runner = 0

    @property
    def running_here(self) -> bool:
        """Are the bodies being run by this thread?"""
        return self._runner == get_ident()

    def defer(self, module: ModuleType) -> None:
        """Instead of running its body. `module.__spec__.loader` is the one that will."""
        name = module.__name__
        self.modules[name] = module
        module.__class__ = Deferred
        _held[id(module)] = self

    def touch(self, module: ModuleType, name: str) -> Any:
        """Brings all, unless the touch can be answered without (then the answer), or comes from the body itself."""
        full = space(module, "__name__")
        if self._begun.get(full) == get_ident():
            return NOTHING
        if not self.whole and not self._runner:
            known = self.known(full, name)
            if known is not NOTHING:
                return known
        self.bring(f"{full}.{name} is wanted", full, name)
        return NOTHING

    def bring(self, why: str, module: str = "", name: str = "") -> None:
        """Runs all bodies that have not run. In the thread that is at it: that of `module` alone."""
        with _NotSearching():
            self._bring(why, module, name)

    def _bring(self, why: str, module: str, name: str) -> None:
        for _ in range(ATTEMPTS):
            lock = _ModuleLockManager(LOCK)
            try:
                lock.__enter__()
            except _DeadlockError:
                # who runs the bodies waits for an import of this thread: what is there has to do, as in any circle
                return
            try:
                if self._runner == get_ident():
                    if module in self._taken:
                        import_module(module)
                elif not self.whole:
                    self._note(why, module, name)
                    self._bring_all()
                return
            except _DeadlockError:
                continue  # another thread imports what a body imports, and waits for the bodies: it shall run them
            finally:
                lock.__exit__(None, None, None)
        raise ImportError(f"{why}, and threads that import it wait for one another")

    def bring_while_importing(self, name: str) -> None:
        """Runs all bodies from within the search for a module. What this thread looks for a body may import as well:
        who runs the bodies must not have to wait for this thread to find it."""
        with _NotSearching():
            held = _looked_for()
            for lock in held:
                lock.release()
            try:
                self.bring(f"{name} is imported", name)
            finally:
                for lock in held:
                    lock.acquire()

    def spec(self, name: str) -> ModuleSpec | None:
        """For the finder: of a module that was taken out, so that importing it runs its body."""
        if name not in self._taken:
            return None
        module = self.modules[name]
        spec: ModuleSpec = space(module, "__spec__")
        if not isinstance(spec.loader, _Body):
            spec.loader = _Body(self, module, spec.loader)  # type: ignore[assignment]  # by duck typing
        return spec

    def run(self, module: ModuleType, loader: Any) -> None:
        """Its body, here and now."""
        name = space(module, "__name__")
        spec = space(module, "__spec__")
        spec.loader = loader
        module.__loader__ = loader
        self._begun[name] = get_ident()
        try:
            loader.exec_module(module)
        except BaseException as error:
            del self._begun[name]
            if isinstance(error, AttributeError):  # else it would look as if the attribute that was wanted were missing
                raise ImportError(f"the body of {name} failed: {error}", name=name) from error
            raise
        if name in self.finish:
            self.finish.pop(name)(module)
        self._taken.discard(name)
        self._done.add(name)

    def _bring_all(self) -> None:
        self._runner = get_ident()
        try:
            while self.before:
                self.before.pop()()
            for name, module in self.modules.items():
                if type(module) is Deferred and sys.modules.get(name) is module:
                    del sys.modules[name]
                    self._taken.add(name)
                    self._out_of_package(name, module)
            for name in list(self.modules):
                if name in self._taken:
                    import_module(name)
            for name, module in self.modules.items():
                if type(module) is Deferred and name not in self._done:  # somebody has taken it out of sys.modules
                    self.run(module, space(module, "__spec__").loader)
            while self.after:
                self.after.pop(0)()
            self.whole = True
        finally:
            self._let_go()
            self._put_back()
            self._runner = 0

    def _let_go(self) -> None:
        """Those that have run are modules like any other: other threads need not wait to touch them."""
        while self._done:
            module = self.modules[self._done.pop()]
            module.__class__ = ModuleType
            del _held[id(module)]

    def _put_back(self) -> None:
        """After a failure: what has not run is there as before, to be touched again."""
        for name in self._taken:
            module = self.modules[name]
            package, _, own = name.rpartition(".")
            sys.modules.setdefault(name, module)
            if package in self.modules:
                dictionary(self.modules[package]).setdefault(own, module)
        self._taken.clear()

    def _out_of_package(self, name: str, module: ModuleType) -> None:
        """A package that waits too finds its submodules as if they had never been imported before."""
        package, _, own = name.rpartition(".")
        parent = self.modules.get(package)
        if type(parent) is Deferred and dictionary(parent).get(own) is module:
            del dictionary(parent)[own]

    def _note(self, why: str, module: str, name: str) -> None:
        frame = sys._getframe(3)
        while frame.f_back and frame.f_globals.get("__name__", "").startswith((__package__, "importlib", "_frozen")):
            frame = frame.f_back
        by = f"{frame.f_globals.get('__name__', '')}:{frame.f_lineno}"
        self.touched.append({"module": module, "name": name, "why": why, "by": by})


class _Body:
    """The loader that runs the body of a module that there is already."""

    def __init__(self, waiting: Waiting, module: ModuleType, loader: Any) -> None:
        self._waiting = waiting
        self._module = module
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The one that waits."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Its body."""
        self._waiting.run(module, self._loader)


def _looked_for() -> list[Any]:
    """The locks of the modules that this thread is looking for, a submodule's before its package's, as it took them."""
    me = get_ident()
    locks = [(name, reference()) for name, reference in list(_module_locks.items()) if name not in sys.modules]
    held = [(name, lock) for name, lock in locks if lock is not None and lock.owner == me and name != LOCK]
    return [lock for _, lock in sorted(held, key=lambda each: -len(each[0]))]


class _NotSearching:
    """A finder is asked under one lock for all imports of the process; who may wait for another thread's import, or
    lets others wait for long, gives it back meanwhile."""

    def __init__(self) -> None:
        self._depth = 0

    def __enter__(self) -> None:
        try:
            while True:
                _imp.release_lock()
                self._depth += 1
        except RuntimeError:  # it is not, or no longer, this thread's
            return

    def __exit__(self, *_: object) -> None:
        for _level in range(self._depth):
            _imp.acquire_lock()
