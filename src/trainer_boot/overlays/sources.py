"""Registering an operator looks for the registering line's source on the disk and goes through all modules.

torch wants a file name and a line for its messages, and the name of the module that registers. Both are in the frame
that it holds; `inspect` looks for them on the disk, with a look-up for each folder of each module's path.
Cost without, while torch is imported: 122 operators, 12,000 look-ups, 0.04 s of CPU time.
"""

import inspect
import sys
from types import FrameType, ModuleType
from typing import Any

from trainer_boot.overlays.changes import Restore, exchange, renamed
from trainer_boot.overlays.known import Unknown, need_function

STAND_IN = "_inspect_or_frame"
GET_SOURCE = {"3.11": "6dd59c4422e81511", "3.12": "426363f77408a3d9", "3.13": "2c463913653d2588"}
REGISTER_FAKE = {"3.11": "1ea7df4b0d0b11d7", "3.12": "4cc055e2e1344bd3", "3.13": "3d2bad08fade1bac"}


class _Frames:
    """`inspect`, whose getmodule looks at the frame first."""

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    @staticmethod
    def getmodule(frame: Any) -> ModuleType | None:
        """The module whose code the frame runs."""
        if isinstance(frame, FrameType):
            module = sys.modules.get(frame.f_globals.get("__name__", ""))
            if (
                module is not None
                and vars(module) is frame.f_globals
                and getattr(module, "__file__", None) == frame.f_code.co_filename
            ):
                return module
        return inspect.getmodule(frame)


def place(module: ModuleType) -> Restore:
    """Of torch._library.utils."""
    function = need_function(module, "get_source", GET_SOURCE)

    def get_source(stacklevel: int) -> str:
        frame = sys._getframe(stacklevel)
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"

    return exchange(function, get_source.__code__)


def caller(module: ModuleType) -> Restore:
    """Of torch.library."""
    function = need_function(module.Library, "_register_fake", REGISTER_FAKE)
    if vars(module).get("inspect") is not inspect:
        raise Unknown("torch.library has another inspect")
    setattr(module, STAND_IN, _Frames())
    return exchange(function, renamed(function.__code__, {"inspect": STAND_IN}))
