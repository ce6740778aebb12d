"""A model cut into pipeline stages in place: a rank's model keeps the modules of its stages, under their own names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from trainer.errors import UserError
from trainer.models.plan import Plan
from trainer.schedules import check_cut, even_cut


class Elsewhere(nn.Module):
    """In the place of a module that another stage has."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, *arguments: Any) -> Any:
        raise UserError(
            f"this pipeline stage called {self.name}, which belongs to another stage",
            "Call the whole model once in the loss, and name all that a stage needs in plan(); or use no pipeline.",
        )


class Cut:
    """Which modules a stage has. `blocks`: numbers of its blocks. `modules(stage)`: their names, and those of what
    comes before and after; what the plan does not name is in every stage, and a module that shares a weight with the
    stage's own (a tied one) is there too. Made of the whole model, so alike on all ranks."""

    def __init__(self, model: nn.Module, plan: Plan, stages: int, given: Sequence[int]) -> None:
        check_cut(given, len(plan.blocks), stages)
        first = [*plan.first, plan.begin or ""]
        last = [*plan.last, plan.end or ""]
        modules = dict(model.named_modules())
        first = [name for name in dict.fromkeys(first) if name and name in modules]
        last = [name for name in dict.fromkeys(last) if name and name in modules]
        sizes = list(given) or even_cut(
            _costs(modules[name] for name in plan.blocks),
            stages,
            sum(_costs((modules[name] for name in first), none=0.0)),
            sum(_costs((modules[name] for name in last), none=0.0)),
        )
        self.blocks: list[range] = []
        for size in sizes:
            start = self.blocks[-1].stop if self.blocks else 0
            self.blocks.append(range(start, start + size))
        self.named = list(dict.fromkeys([*plan.blocks, *first, *last]))
        listed = [[plan.blocks[index] for index in blocks] for blocks in self.blocks]
        listed[0] += first
        listed[-1] += [name for name in last if name not in listed[-1]]
        common = [name for name, _ in _unnamed(model, "", set(self.named))]
        # names only: a parameter that is kept here would be kept on ranks that have no use for it
        parameters = {name: _parameters(modules[name]) for name in self.named}
        self._modules = [[*own, *_tied(own, parameters), *common] for own in listed]
        self.loose = _loose(model, set(self.named))

    def modules(self, stage: int) -> list[str]:
        """Names of what the stage has, none inside another."""
        return self._modules[stage]

    def holders(self, model: nn.Module, ranks: Sequence[Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """Of each parameter that several ranks have, all that do; `ranks`: the stages of each."""
        have: list[set[nn.Parameter]] = [
            {p for stage in own for name in self.modules(stage) for p in _parameters(model.get_submodule(name))}
            for own in ranks
        ]
        found = {}
        for name, parameter in model.named_parameters():
            at = tuple(rank for rank, own in enumerate(have) if parameter in own or name in self.loose)
            if len(at) > 1 and parameter.requires_grad:
                found[name] = at
        return found


def keep_only(model: nn.Module, cut: Cut, stages: Iterable[int]) -> None:
    """Takes the modules of other stages out of `model`; their memory is free when nobody else holds them."""
    kept = {name for stage in stages for name in cut.modules(stage)}
    for name in cut.named:
        if name not in kept:
            parent, _, own = name.rpartition(".")
            model.get_submodule(parent)._modules[own] = Elsewhere(name)


def _costs(modules: Iterable[nn.Module], none: float = 1.0) -> list[float]:
    """Work for one token or sample of each, counted: a product with each matrix, a look-up in a table is free. `none`:
    of modules without any."""
    found = []
    for module in modules:
        work = 0.0
        for each in module.modules():
            if not isinstance(each, nn.Embedding | nn.EmbeddingBag):
                work += sum(p.numel() for p in each.parameters(recurse=False) if p.ndim > 1)
        found.append(work or none)
    return found


def _tied(listed: Sequence[str], parameters: Mapping[str, set[nn.Parameter]]) -> list[str]:
    """Names of modules beside the listed ones that share a parameter with them."""
    held = {parameter for name in listed for parameter in parameters[name]}
    return [name for name, own in parameters.items() if name not in listed and not held.isdisjoint(own)]


def _parameters(module: nn.Module) -> set[nn.Parameter]:
    return set(module.parameters())


def _unnamed(module: nn.Module, prefix: str, named: set[str]) -> Iterable[tuple[str, nn.Module]]:
    """Modules that the plan does not name, the outermost of each."""
    for own, child in module.named_children():
        name = f"{prefix}{own}"
        if name in named:
            continue
        if any(each.startswith(f"{name}.") for each in named):
            yield from _unnamed(child, f"{name}.", named)
        else:
            yield name, child


def _loose(model: nn.Module, named: set[str]) -> set[str]:
    """Names of parameters that lie beside what the plan names, in the model itself or in what holds its blocks."""
    found = set()
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        if not name or any(each.startswith(prefix) for each in named):
            found |= {f"{prefix}{own}" for own, _ in module.named_parameters(recurse=False)}
    return found
