"""Tensor parallelism: the matrices of a layer are cut over ranks that see the same samples (Shoeybi et al.,
"Megatron-LM", 2019), and on request the tokens between the layers too (Korthikanti et al., "Reducing Activation
Recomputation", 2022). The engine is torch's: DTensors, and its styles for modules."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from trainer.errors import UserError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement

HEADS = 2  # dimension of (B, S, heads, head)
WORDS = ("column", "row", "vocabulary", "sequence", "heads", "whole")
_DIVIDED = {"column": "out_features", "row": "in_features"}  # the size of a module that the ranks must divide


def apply_tensor(model: nn.Module, mesh: "DeviceMesh", plan: Mapping[str, str], *, sequence: bool, loss: bool) -> None:
    """Cuts `model`, whole and the same on all ranks of the one-dimensional `mesh`, in place as `plan` says: patterns of
    module names -> words (see Plan). Between the modules named there tensors are plain ones.

    `sequence`: outside of the cut matrices a rank has its part of the tokens (dimension 1), which the ranks must
    divide. `loss`: logits stay cut over the vocabulary (a DTensor, which `cross_entropy` takes). Sends nothing. Tied
    weights stay tied. UserError for a plan that does not fit the model.
    """
    between: Placement = Shard(1) if sequence else Replicate()
    planned = list(_planned(model, plan))
    for name, module, word in planned:
        _check(name, module, word, mesh.size())
    ties, frozen = _ties(model), {name for name, each in model.named_parameters() if not each.requires_grad}
    wider = {name: each.grad_dtype for name, each in model.named_parameters() if each.grad_dtype != each.dtype}
    if sequence and hasattr(model, "multiple"):
        own: Any = model
        own.multiple = mesh.size()
    for _, module, word in planned:
        style = _style(module, word, between, sequence, loss)
        if style is not None:
            parallelize_module(module, mesh, style, src_data_rank=None)
        if word == "whole":
            module.register_forward_pre_hook(_gathered(mesh, between))
        elif sequence and isinstance(module, nn.Embedding):
            module.register_forward_pre_hook(_divided(mesh.size()), prepend=True)
    _tie(ties)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)  # styles forget it
        if name in wider:
            parameter.grad_dtype = wider[name]


def _planned(model: nn.Module, plan: Mapping[str, str]) -> Iterator[tuple[str, nn.Module, str]]:
    """(name, module, word) of every module that a pattern names; `*` stands for one part of a dotted name."""
    found: dict[str, str] = {}
    for pattern, word in plan.items():
        if word not in WORDS:
            raise UserError(
                f'the plan of the model shards {pattern!r} as "{word}"', f"Use one of {', '.join(WORDS)}.", 2
            )
        names = [name for name, _ in model.named_modules() if _matches(name, pattern)]
        if not names:
            raise UserError(
                f"the plan of the model shards {pattern!r}, but no module has that name",
                "Name it as named_modules() does, with `*` for one part, such as blocks.*.attention.query.",
                2,
            )
        found.update(dict.fromkeys(names, word))
    for name, word in found.items():
        yield name, model.get_submodule(name), word


def _matches(name: str, pattern: str) -> bool:
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _style(module: nn.Module, word: str, between: "Placement", sequence: bool, loss: bool) -> ParallelStyle | None:
    """torch's style for a word; None where nothing but the module's input changes, if that."""
    if word == "column":
        return ColwiseParallel(input_layouts=between)
    if word == "row":
        return RowwiseParallel(output_layouts=between)
    if word == "vocabulary" and isinstance(module, nn.Embedding):
        return RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    if word == "vocabulary":
        kept = Shard(-1) if loss else Replicate()
        return ColwiseParallel(input_layouts=between, output_layouts=kept, use_local_output=not loss)
    if word == "heads":
        return SequenceParallel(sequence_dim=HEADS, use_local_output=True)
    if word == "sequence" and sequence:
        return SequenceParallel(use_local_output=True)
    return None


def _check(name: str, module: nn.Module, word: str, ranks: int) -> None:
    if word not in ("column", "row", "vocabulary"):
        return
    if not isinstance(module, nn.Linear) and not (word == "vocabulary" and isinstance(module, nn.Embedding)):
        raise UserError(
            f'{name} is a {type(module).__name__}; "{word}" is for nn.Linear ("vocabulary" for nn.Embedding too)',
            "Name the linear layers inside it.",
            2,
        )
    if word in _DIVIDED:
        size = getattr(module, _DIVIDED[word])
        if size % ranks:
            raise UserError(
                f"{_DIVIDED[word]} of {name} is {size}, which is not a multiple of parallel.tensor = {ranks}",
                "Change parallel.tensor or that size.",
                2,
            )
    else:
        rows = module.weight.shape[0]
        if -(-rows // ranks) * (ranks - 1) >= rows:  # cut as torch.chunk does
            raise UserError(
                f"{name} has {rows} rows: nothing is left for the last of {ranks} tensor ranks",
                "Lower parallel.tensor, or use more rows.",
                2,
            )


def _gathered(mesh: "DeviceMesh", between: "Placement") -> Any:
    """A hook that gives a module's first input whole to all that is inside it: one exchange for all its columns, in
    backward too."""

    def hook(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x = inputs[0]
        if isinstance(x, Tensor) and not isinstance(x, DTensor):
            x = DTensor.from_local(x, mesh, (between,), run_check=False)
        return (x.redistribute(placements=(Replicate(),)), *inputs[1:])

    return hook


def _divided(ranks: int) -> Any:
    """A hook that refuses tokens which do not come out even: torch's styles would go on with parts of two sizes."""

    def hook(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs[0].shape[1] % ranks:
            raise UserError(
                f"{inputs[0].shape[1]} tokens is not a multiple of parallel.tensor = {ranks}",
                "Change the length of the samples, or remove parallel.sequence_parallel.",
                2,
            )

    return hook


def _ties(model: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """Places that hold one and the same parameter: (module, attribute), where there is more than one."""
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            places.setdefault(parameter, []).append((module, name))
    return [each for each in places.values() if len(each) > 1]


def _tie(ties: list[list[tuple[nn.Module, str]]]) -> None:
    for (first, first_name), *others in ties:
        kept = getattr(first, first_name)
        for module, name in others:
            other = getattr(module, name)
            if getattr(kept, "placements", None) != getattr(other, "placements", None):
                raise UserError(
                    f"{type(first).__name__} and {type(module).__name__} share a weight, but the model's plan shards "
                    "it in two ways",
                    'Use one word for both: "vocabulary" for an embedding and the output layer that shares its weight.',
                    2,
                )
            setattr(module, name, kept)
