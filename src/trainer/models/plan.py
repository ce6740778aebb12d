"""How a model may be cut: which parts of it are units, in which order."""

from collections.abc import Mapping, Sequence

from torch import nn

from trainer.errors import UserError


class Plan:
    """`blocks`: names of the units of a model, in the order in which its forward uses them: what is gathered,
    recomputed, compiled or sent to another stage as one. `tensor`: how the matrices of modules are cut, by a pattern of
    their names (`blocks.*.attention.query`).
    """

    def __init__(self, blocks: Sequence[str], *, tensor: Mapping[str, str] | None = None) -> None:
        self.blocks = tuple(blocks)
        self.tensor = dict(tensor or {})


def plan_of(model: nn.Module) -> Plan:
    """What the model's own method `plan()` gives, else the members of its longest lists of modules as blocks.

    Raises UserError (status 2) for a plan that names what the model has not.
    """
    own = getattr(model, "plan", None)
    if not callable(own):
        return Plan(_listed(model))
    plan = own()
    if not isinstance(plan, Plan):
        raise UserError(
            f"{type(model).__name__}.plan() returned {type(plan).__name__}.", "Let it return a trainer.Plan.", 2
        )
    known = dict(model.named_modules())
    for name in plan.blocks:
        if name not in known:
            raise UserError(
                f"{type(model).__name__}.plan() names a block {name!r}, which the model has not.",
                "Name modules as named_modules() does, such as blocks.0.",
                2,
            )
    return plan


def _listed(model: nn.Module) -> list[str]:
    """Names of the members of the outermost lists of modules; a list inside a member belongs to that member."""
    lists = [each for each in model.modules() if isinstance(each, nn.ModuleList | nn.Sequential)]
    inner = {below for each in lists for member in each for below in member.modules() if below in set(lists)}
    names = {module: name for name, module in model.named_modules()}
    return [
        names[member]
        for each in lists
        if each not in inner
        for member in each
        if any(True for _ in member.parameters())
    ]


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The units of `plan_of(model)`."""
    return [model.get_submodule(name) for name in plan_of(model).blocks]
