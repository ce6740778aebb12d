"""Which parameters are updated alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor, nn

    from trainer.schema import Optim

    Group: TypeAlias = dict[str, Any]


def split_parameters(model: nn.Module) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """(matrices, output layers' matrices, all else) of the trained parameters, each once, in the model's order.

    A weight that is an embedding's anywhere is no matrix, also where an output layer shares it.
    """
    from torch import nn

    embeddings: set[Tensor] = set()
    outputs: set[Tensor] = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            embeddings.update(module.parameters(recurse=False))
        for name in getattr(module, "output_layers", ()):
            outputs.update(module.get_submodule(name).parameters())
    found: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    for parameter in model.parameters():
        if parameter.requires_grad:
            flat = parameter.ndim < 2 or parameter in embeddings
            found[2 if flat else 1 if parameter in outputs else 0].append(parameter)
    return found


def decay_groups(decayed: list[Tensor], rest: list[Tensor], optim: Optim) -> list[Group]:
    """One group for what decays, one for what does not; one for all where nothing does: one kernel. Each once more for
    every mesh that parameters are cut over: torch's kernels take tensors of one mesh only."""
    if not optim.weight_decay:
        decayed, rest = [], decayed + rest
    groups: list[Group] = []
    for parameters, decay in ((decayed, optim.weight_decay), (rest, 0.0)):
        by_mesh: dict[object, list[Tensor]] = {}
        for parameter in parameters:
            by_mesh.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
        groups += [{"params": alike, "weight_decay": decay} for alike in by_mesh.values()]
    return groups
