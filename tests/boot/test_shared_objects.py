"""How long the linker takes."""

import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.machinery import ExtensionFileLoader
from typing import Any

import pytest

from trainer_boot import shared_objects


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shared_objects, "intervals", [])
    yield
    shared_objects.unwatch()


def test_each_that_is_opened_is_timed() -> None:
    begin = time.monotonic_ns()
    shared_objects.watch()
    shared_objects.watch()
    ctypes.CDLL("libc.so.6")
    shared_objects.unwatch()
    ctypes.CDLL("libc.so.6")
    end = time.monotonic_ns()
    ((first, last),) = shared_objects.intervals
    assert begin < first < last < end
    assert shared_objects.within(begin, end) == last - first
    assert shared_objects.within(begin, first) == 0
    assert shared_objects.within((first + last) // 2, end) == last - (first + last) // 2


def test_what_fails_is_timed_too() -> None:
    shared_objects.watch()
    with pytest.raises(OSError, match="no-such"):
        ctypes.CDLL("no-such.so")
    assert len(shared_objects.intervals) == 1


def test_afterwards_nothing_is_left() -> None:
    own: Any = ctypes
    before = own._dlopen, vars(ExtensionFileLoader)["create_module"]
    shared_objects.watch()
    assert own._dlopen is not before[0]
    shared_objects.unwatch()
    assert (own._dlopen, vars(ExtensionFileLoader)["create_module"]) == before


def test_ctypes_that_is_imported_meanwhile_has_its_own_back() -> None:
    script = """if True:
        from trainer_boot import shared_objects
        shared_objects.watch()
        import ctypes, _ctypes
        import _decimal
        shared_objects.unwatch()
        assert ctypes._dlopen is _ctypes.dlopen and type(ctypes._dlopen).__name__ == "builtin_function_or_method"
        print(len(shared_objects.intervals))
        """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 1
