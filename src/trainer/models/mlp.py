"""A plain classifier: linear layers with ReLU between."""

from typing import TYPE_CHECKING, cast

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
        return Plan(names, tensor=words)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2:
            x = x.flatten(1)
        x = x.to(self.output.weight.dtype)
        for layer in self.hidden:
            x = functional.relu(layer(x))
            if self.dropout and self.training:
                x = functional.dropout(x, self.dropout)
        return cast(Tensor, self.output(x))


def build_mlp(model: Model, *, vocabulary: int = 0) -> MLP:
    """The classifier of the run file; `vocabulary` is of no use to it."""
    check_model(model)
    return MLP(
        inputs=model.inputs, width=model.width, layers=model.layers, classes=model.classes, dropout=model.dropout
    )
