"""Each of torch's overloads for TorchScript is parsed from its source file, to see that its body is `pass`.

That is a check for who writes such overloads; torch's own pass it, in the version that the overlay is for. Those of
others are checked as ever. Cost without, while torch is imported: 26 functions, 90 look-ups, 7 ms of CPU time.
"""

from types import FunctionType, ModuleType

from trainer_boot.overlays.changes import Restore, exchange
from trainer_boot.overlays.known import need_function

STAND_IN = "_check_overload_of_others"
CHECK = {"3.11": "30c7f07c69a4f716", "3.12": "7d6153ff3ca64ab5", "3.13": "02ad30183694a121"}


def bodies(module: ModuleType) -> Restore:
    """Of torch._jit_internal."""
    function = need_function(module, "_check_overload_body", CHECK)
    setattr(module, STAND_IN, FunctionType(function.__code__, vars(module), function.__name__))

    def check(func: FunctionType) -> None:
        if not str(func.__module__).startswith("torch."):
            _check_overload_of_others(func)  # type: ignore[name-defined] # noqa: F821

    return exchange(function, check.__code__)
