"""Room for Python's frames in one piece.

The interpreter (3.11 and later) keeps frames on a stack of pieces of 16 KiB and gives a piece back to the system as
soon as its first frame is left. Where that border falls between a function and what it calls in a loop, each call maps
and unmaps memory: importing torch from where the trainer does, that is 12,600 pairs of system calls, and 25 ms. A frame
that asks for much room gets a piece of its own, in which all that it calls finds place. What is not used of it is never
touched, and costs nothing.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")

# just over half of the piece that it gets (1 MiB), so that the other half is free for the frames above it
WORDS = (1 << 19) // 8 + 64


def roomy(
    function: "Callable[Parameters, Result]", *arguments: "Parameters.args", **options: "Parameters.kwargs"
) -> "Result":
    """Calls the function, with half a mebibyte of room for the frames of what it calls."""
    return function(*arguments, **options)


roomy.__code__ = roomy.__code__.replace(co_stacksize=WORDS)
