"""Functions of torch that the compiler must not look into ask for the whole compiler before their first call.

`torch._disable_dynamo` wraps them; the wrapper imports torch._dynamo to make itself a version of the function that
turns the compiler off, and keeps it as an attribute of the function. Where nothing is compiled there is nothing to turn
off: the function itself is kept there as that version, and taken away again before torch._dynamo is imported.

Here: `Optimizer`'s four methods, DDP's forward context, the two entries of `torch.utils.checkpoint`.
Cost without: 899 modules and 1.3 s of CPU time, shared with `grad_mode` and `reducer_mode`, which ask for it too.
"""

from types import FunctionType, ModuleType

from trainer_boot.overlays.changes import Restore, all_of
from trainer_boot.overlays.known import Unknown, need_code

KEPT = "__dynamo_disable"
WRAPPER = {"3.11": "c7ef86b4094bcc23", "3.12": "9e2d7ddf38ccafc4", "3.13": "f57babd6bde822f4"}


def optimizers(module: ModuleType) -> Restore:
    """Of torch.optim.optimizer."""
    methods = ("state_dict", "load_state_dict", "zero_grad", "add_param_group")
    return all_of([_keep(vars(module.Optimizer).get(name), name) for name in methods])


def ddp_forward(module: ModuleType) -> Restore:
    """Of torch.nn.parallel.distributed. The wrapper is inside of a context manager's function."""
    name = "_inside_ddp_forward"
    outer = vars(module.DistributedDataParallel).get(name)
    return _keep(getattr(outer, "__wrapped__", None), name)


def checkpointing(module: ModuleType) -> Restore:
    """Of torch.utils.checkpoint."""
    return all_of([_keep(vars(module).get(name), name) for name in ("checkpoint", "_run_fn_with_dynamo_disabled")])


def _keep(wrapper: object, name: str) -> Restore:
    """Keeps the wrapped function as its own version for where nothing is compiled."""
    function = getattr(wrapper, "__wrapped__", None)
    if not isinstance(wrapper, FunctionType) or not isinstance(function, FunctionType):
        raise Unknown(f"{name} is not wrapped")
    need_code(wrapper.__code__, f"the wrapper of {name}", WRAPPER)
    if KEPT in vars(function):
        raise Unknown(f"{name} was called already")
    setattr(function, KEPT, function)

    def restore() -> None:
        if vars(function).get(KEPT) is function:
            delattr(function, KEPT)

    return restore
