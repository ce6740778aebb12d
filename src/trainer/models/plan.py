"""How a model may be cut: which parts of it are units, in which order."""

from collections.abc import Mapping, Sequence

from torch import nn

from trainer.errors import UserError


class Plan:
    """`blocks`: names of the units of a model, in the order in which its forward uses them: what is gathered,
    recomputed, compiled or sent to another stage as one.

    `tensor`: how modules are cut over tensor ranks, a word by a pattern of their names (`blocks.*.attention.query`,
    where `*` is one part of a name):

    - "column": nn.Linear or nn.Embedding by outputs; what it gives is this rank's part of them (its heads);
    - "row": nn.Linear by inputs, of which each rank has the part that columns gave; the output is summed;
    - "vocabulary": nn.Embedding by rows, or the nn.Linear that gives logits by classes;
    - "whole": takes its first argument whole: one exchange for all the columns inside;
    - "sequence": a norm; under sequence_parallel it sees this rank's part of the tokens;
    - "heads": a norm of (B, S, heads, head) behind columns.
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


def tensor_plan(model: nn.Module) -> dict[str, str]:
    """How the matrices of `model` are cut; UserError (status 2) where its plan does not say so."""
    plan = plan_of(model)
    if not plan.tensor:
        raise UserError(
            f"parallel.tensor cuts matrices, and {type(model).__name__} does not say which and how.",
            "Give it a method plan() that returns trainer.models.plan.Plan(blocks, tensor={...}), for each block "
            '{"blocks.*.up": "column", "blocks.*.down": "row"}; or leave parallel.tensor out.',
            2,
        )
    return plan.tensor


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
