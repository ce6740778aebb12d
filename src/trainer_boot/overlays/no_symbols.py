"""Parts of sympy and of torch.utils._sympy for functions that only name them: nothing is one of these yet.

Renamed imports find it, by this name and by ALIAS (`import a.b` without a name of its own gives `a`). Once sympy is
there, it answers itself.
"""

import sys
from importlib import import_module
from typing import Any

HERE = "trainer_boot.overlays.no_symbols"
ALIAS = "_sympy_or_nothing"


class _Nothing:
    """The kind of no object."""


_answers = {"Basic": ("sympy", _Nothing), "Max": ("torch.utils._sympy.functions", _Nothing)}


def __getattr__(name: str) -> Any:
    if name[:2] == name[-2:] == "__":  # what importlib asks of every module
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, nothing = _answers.get(name, ("sympy", None))
    if nothing is not None and home not in sys.modules:
        return nothing
    return getattr(import_module(home), name)


def serve() -> None:
    """Makes it a module of that other name too."""
    sys.modules[ALIAS] = sys.modules[__name__]
