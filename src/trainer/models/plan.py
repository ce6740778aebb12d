"""How a model may be cut: its units in order, what comes before and after them, and how its matrices may be split."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from torch import Tensor, nn

from trainer.errors import UserError


class Plan:
    """`blocks`: names of the units, in the order in which a forward uses them: what is gathered, recomputed or compiled
    as one, and what a pipeline is cut between.

    For a pipeline a forward has to be `end(middle(begin(...), blocks, ...))`. `begin` and `end` name a method or a
    module of the model: begin(*what the model is called with) -> a tensor, end(tensor) -> what the model returns;
    "" where there is nothing to do. `middle` names a method (tensor, range of blocks, *what the model is called with)
    -> tensor; "": each block is called with the tensor alone. `hidden` names a method (*what the model is called with)
    -> (shape, dtype) of the tensor between blocks; "": it is found out without computing anything. `first` and `last`
    name the modules that begin and end use, so that other stages need not keep them.

    `tensor`: how modules are cut over tensor ranks, a word by a pattern of their names (`blocks.*.attention.query`,
    where `*` is one part of a name):

    - "column": nn.Linear by outputs; what it gives is this rank's part of them (its heads);
    - "row": nn.Linear by inputs, of which each rank has the part that columns gave; the output is summed;
    - "vocabulary": nn.Embedding by rows, or the nn.Linear that gives logits by classes;
    - "whole": takes its first argument whole: one exchange for all the columns inside;
    - "sequence": a norm; under sequence_parallel it sees this rank's part of the tokens;
    - "heads": a norm of (B, S, heads, head) behind columns.
    """

    def __init__(
        self,
        blocks: Sequence[str],
        *,
        begin: str | None = None,
        middle: str = "",
        end: str | None = None,
        hidden: str = "",
        first: Sequence[str] = (),
        last: Sequence[str] = (),
        tensor: Mapping[str, str] | None = None,
    ) -> None:
        self.blocks = tuple(blocks)
        self.begin = begin
        self.middle = middle
        self.end = end
        self.hidden = hidden
        self.first = tuple(first)
        self.last = tuple(last)
        self.tensor = dict(tensor or {})


def plan_of(model: nn.Module) -> Plan:
    """The model's own `plan()`, else what its `stages()` or its being an nn.Sequential says, else its longest lists of
    modules as units, with which no pipeline can be made. UserError (status 2) for a plan that names what the model has
    not."""
    own = getattr(model, "plan", None)
    if callable(own) and not isinstance(own, nn.Module):
        plan = own()
        if not isinstance(plan, Plan):
            raise UserError(
                f"the model's plan() returned {type(plan).__name__}, not a Plan",
                "Return trainer.models.plan.Plan(blocks=[...]).",
                2,
            )
        known = {name for name, _ in model.named_modules()}
        for name in (*plan.blocks, *plan.first, *plan.last):
            if name not in known and getattr(model, name, model) is not None:
                raise UserError(
                    f"{type(model).__name__}.plan() names {name!r}, which is no module of the model",
                    "Name modules as named_modules() does, such as blocks.0.",
                    2,
                )
        return plan
    stages = getattr(model, "stages", None)
    if callable(stages) and not isinstance(stages, nn.Module):
        return Plan(_names_of(model, stages()), begin="", end="")
    if isinstance(model, nn.Sequential):
        return Plan([name for name, _ in model.named_children()], begin="", end="")
    return Plan(longest_lists(model))


def tensor_plan(model: nn.Module) -> dict[str, str]:
    """How the matrices of `model` are cut; UserError (status 2) where its plan does not say so."""
    plan = plan_of(model)
    if not plan.tensor:
        raise UserError(
            f"parallel.tensor shards matrices, but {type(model).__name__} does not say which and how",
            "Define plan() to return trainer.models.plan.Plan(blocks, tensor={...}), for each block "
            '{"blocks.*.up": "column", "blocks.*.down": "row"}; or remove parallel.tensor.',
            2,
        )
    return plan.tensor


def longest_lists(model: nn.Module) -> list[str]:
    """Names of the members of the outermost lists of modules; a list inside a member belongs to that member."""
    lists = {name: each for name, each in model.named_modules() if isinstance(each, nn.ModuleList | nn.Sequential)}
    members = {f"{name}.{index}" if name else index for name, each in lists.items() for index in each._modules}
    inner = {name for name in lists if any(name == each or name.startswith(f"{each}.") for each in members)}
    return [
        f"{name}.{index}" if name else index
        for name, each in lists.items()
        if name not in inner
        for index, member in each.named_children()
        if any(True for _ in member.parameters())
    ]


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The units of `plan_of(model)` that have weights."""
    found = map(model.get_submodule, plan_of(model).blocks)
    return [each for each in found if any(True for _ in each.parameters())]


class Pieces:
    """The parts of a forward that a plan names, of one model."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        if plan.begin is None or plan.end is None:
            raise UserError(
                f"a pipeline cannot split {type(model).__name__}: what comes before and after its blocks is not given",
                "Define stages() to return its modules in order, or plan() -> trainer.models.plan.Plan.",
                2,
            )
        self.model = model
        self.blocks = [model.get_submodule(name) for name in plan.blocks]
        self._begin = _piece(model, plan.begin)
        self._middle = _piece(model, plan.middle)
        self._end = _piece(model, plan.end)

    def run(
        self, hidden: Tensor | None, blocks: range, args: tuple[Any, ...], kwargs: Mapping[str, Any], last: bool
    ) -> Any:
        """The blocks of a range, with what comes before where `hidden` is None, and after where `last`."""
        if hidden is None:
            hidden = cast(Tensor, self._begin(*args, **kwargs) if self._begin else _alone(args, kwargs))
        if self._middle:
            hidden = cast(Tensor, self._middle(hidden, blocks, *args, **kwargs))
        else:
            for index in blocks:
                hidden = cast(Tensor, self.blocks[index](hidden))
        return self._end(hidden) if last and self._end else hidden


def _piece(model: nn.Module, name: str) -> Callable[..., Any] | None:
    if not name:
        return None
    found: Any = model
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UserError(
            f"the plan of the model names {name}, which is no method or module of it",
            "Set begin, middle and end to existing names, or leave them empty.",
            2,
        )
    return cast(Callable[..., Any], found)


def _alone(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        return args[0]
    raise UserError(
        f"the model is called with {len(args) + len(kwargs)} arguments, and its first stage is a module that takes one",
        "Define plan() in the model, and name the method to begin with in it.",
        2,
    )


def _names_of(model: nn.Module, stages: Sequence[nn.Module]) -> list[str]:
    names = {module: name for name, module in model.named_modules()}
    for each in stages:
        if each not in names:
            raise UserError(
                f"stages() returned {type(each).__name__}, which is not a module of the model",
                "Return modules that are attributes of the model, in the order in which they are called.",
                2,
            )
    return [names[each] for each in stages]
