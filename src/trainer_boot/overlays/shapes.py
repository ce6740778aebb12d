"""`torch._check` and a backward pass from given gradients import sympy to compare plain numbers.

torch.fx.experimental.symbolic_shapes is for sizes that are symbols; it brings sympy along. The functions that import
it get `plain_shapes` instead, which answers for plain numbers and asks the real one about all else. Taken back before
symbolic_shapes is imported. Cost without: 484 modules and 0.3 s of CPU time at the first such call.
"""

from types import ModuleType

from trainer_boot.overlays.changes import Restore, exchange, renamed
from trainer_boot.overlays.known import need_function

SYMBOLIC = "torch.fx.experimental.symbolic_shapes"
PLAIN = "trainer_boot.overlays.plain_shapes"
CHECK_WITH = {"3.11": "5cf85d8662fc32e0", "3.12": "f8b4904775671d9f", "3.13": "0e9480b197b3273c"}
MAKE_GRADS = {"3.11": "7ebe66013bc76c46", "3.12": "c87e9aa519f945ff", "3.13": "b0a869e438af1e6f"}


def checks(module: ModuleType) -> Restore:
    """Of torch."""
    function = need_function(module, "_check_with", CHECK_WITH)
    return exchange(function, renamed(function.__code__, {SYMBOLIC: PLAIN}))


def gradients(module: ModuleType) -> Restore:
    """Of torch.autograd."""
    function = need_function(module, "_make_grads", MAKE_GRADS)
    return exchange(function, renamed(function.__code__, {SYMBOLIC: PLAIN}))
