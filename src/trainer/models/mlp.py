"""A plain classifier: linear layers with ReLU between."""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.models.check import check_model
from trainer.schema import Model

if TYPE_CHECKING:
    from trainer.models.plan import Plan


class MLP(nn.Module):
    """Logits (B, classes) of samples (B, inputs); samples of more dimensions are flattened, numbers of another dtype
    converted to the weights'.
    """

    output_layers = ("output",)

    def __init__(self, *, inputs: int, width: int, layers: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.dropout = dropout
        self.hidden = nn.ModuleList(nn.Linear(inputs if i == 0 else width, width) for i in range(layers))
        self.output = nn.Linear(width, classes)

    def plan(self) -> "Plan":
        """Its units, and how they are cut: every second layer by outputs, the one after it by inputs."""
        from trainer.models.plan import Plan

        names = [f"hidden.{layer}" for layer in range(len(self.hidden))]
        words = {name: "row" if layer % 2 else "column" for layer, name in enumerate([*names, "output"])}
        if words["output"] == "column":
            words["output"] = "vocabulary"
        return Plan(
            names, begin="begin", middle="middle", end="output", hidden="between", last=("output",), tensor=words
        )

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.output(self.middle(self.begin(x), range(len(self.hidden)))))

    def begin(self, x: Tensor) -> Tensor:
        """Samples as the layers take them."""
        return (x if x.ndim == 2 else x.flatten(1)).to(next(self.parameters()).dtype)

    def middle(self, x: Tensor, layers: range, samples: Tensor | None = None) -> Tensor:
        """Some of the hidden layers, after another; `samples`, which the first began with, are of no use to them."""
        for layer in layers:
            x = functional.relu(self.hidden[layer](x))
            if self.dropout and self.training:
                x = functional.dropout(x, self.dropout)
        return x

    def between(self, x: Tensor) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and type of what goes from layer to layer."""
        return (x.shape[0], self.width), next(self.parameters()).dtype


def build_mlp(model: Model, *, vocabulary: int = 0) -> MLP:
    """The classifier of the run file; `vocabulary` is of no use to it."""
    check_model(model)
    return MLP(
        inputs=model.inputs, width=model.width, layers=model.layers, classes=model.classes, dropout=model.dropout
    )
