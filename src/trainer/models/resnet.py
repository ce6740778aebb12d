"""Residual network of basic blocks (He et al., "Deep Residual Learning for Image Recognition", 2016)."""

from typing import TYPE_CHECKING, cast

from torch import Tensor, nn
from torch.nn import functional

from trainer.models.check import check_model, class_count
from trainer.schema import Model

if TYPE_CHECKING:
    from trainer.models.plan import Plan


def convolution(inputs: int, outputs: int, size: int, stride: int) -> nn.Conv2d:
    """Without bias, which the batch norm after it would take away; weights start normal by the number of outputs."""
    made = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    nn.init.kaiming_normal_(made.weight, mode="fan_out", nonlinearity="relu")
    return made


class BasicBlock(nn.Module):
    """relu(x + norm(conv(relu(norm(conv(x)))))), both 3x3; (B, inputs, H, W) -> (B, outputs, H / stride, W / stride).

    The second norm's weight starts at 0, so that a block begins as its shortcut (Goyal et al., "Accurate, Large
    Minibatch SGD", 2017).
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.convolution1 = convolution(inputs, outputs, 3, stride)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.convolution2 = convolution(outputs, outputs, 3, 1)
        self.norm2 = nn.BatchNorm2d(outputs)
        nn.init.zeros_(self.norm2.weight)
        self.shortcut: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        branch = functional.relu(self.norm1(self.convolution1(x)))
        branch = self.norm2(self.convolution2(branch))
        return functional.relu(branch + (x if self.shortcut is None else self.shortcut(x)))


class Stem(nn.Module):
    """From channels to filters: 3x3 for small images; `large`: 7x7 and a maximum, each halving height and width."""

    def __init__(self, channels: int, filters: int, large: bool) -> None:
        super().__init__()
        self.large = large
        self.convolution = convolution(channels, filters, 7, 2) if large else convolution(channels, filters, 3, 1)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.convolution(x.to(self.convolution.weight.dtype))))
        return functional.max_pool2d(x, 3, 2, 1) if self.large else x


class ResNet(nn.Module):
    """Logits (B, classes) of images (B, channels, H, W), of another dtype converted to the weights'.

    `stages`: basic blocks of each; every stage but the first halves height and width and doubles the filters.
    [2, 2, 2, 2] with 64 filters is ResNet-18, [3, 3, 3] with 16 and the small stem the ResNet-20 for CIFAR.
    """

    output_layers = ("output",)

    def __init__(self, *, channels: int, filters: int, stages: list[int], classes: int, large: bool = False) -> None:
        super().__init__()
        self.stem = Stem(channels, filters, large)
        self.blocks = nn.ModuleList()
        width = filters
        for stage, count in enumerate(stages):
            outputs = filters * 2**stage
            for number in range(count):
                self.blocks.append(BasicBlock(width, outputs, 2 if stage and not number else 1))
                width = outputs
        self.output = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return self.end(x)

    def plan(self) -> "Plan":
        """Where it may be cut."""
        from trainer.models.plan import Plan

        blocks = [f"blocks.{number}" for number in range(len(self.blocks))]
        return Plan(blocks, begin="stem", end="end", first=("stem",), last=("output",))

    def end(self, x: Tensor) -> Tensor:
        """Logits, of what the last block gives."""
        return cast(Tensor, self.output(x.mean((2, 3))))


def build_resnet(model: Model, *, vocabulary: int) -> ResNet:
    """The residual network of the run file; `vocabulary`: classes of the data, 0 if it does not tell."""
    check_model(model, vocabulary)
    return ResNet(
        channels=model.channels,
        filters=model.filters,
        stages=model.stages,
        classes=class_count(model, vocabulary),
        large=model.stem == "large",
    )
