"""Vision transformer: patches of an image as a sequence, the blocks of the GPT without the causal mask."""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from trainer.models.attention import Rotary
from trainer.models.check import check_model, class_count, hidden_width, key_value_heads
from trainer.models.gpt import TENSOR, Block, Transformer
from trainer.models.layers import Linear, RMSNorm
from trainer.schema import Model

if TYPE_CHECKING:
    from trainer.models.plan import Plan

BASE = 100.0  # of the rotary positions: a grid is short


class GridRotary(Rotary):
    """Rotations by place in a grid of side x side patches: half of a head's pairs turn by row, half by column (as in
    Heo et al., "Rotary Position Embedding for Vision Transformer", 2024). `head` divides by 4."""

    def __init__(self, head: int, side: int) -> None:
        super().__init__(head, BASE)
        self.side = side

    def _make(self, length: int) -> Tensor:
        assert length == self.side**2, (length, self.side)
        pairs = torch.arange(0, self.head, 4, dtype=torch.float64, device="cpu")
        places = torch.arange(self.side, dtype=torch.float64, device="cpu")
        angles = torch.outer(places, self.base ** (-pairs / self.head))
        rows = angles.repeat_interleave(self.side, 0)
        columns = angles.repeat(self.side, 1)
        both = torch.cat((rows, columns), 1)
        return torch.polar(torch.ones_like(both), both).unsqueeze(1)


class ViT(Transformer):
    """Logits (B, classes) of images (B, channels, image, image); the mean over all patches is classified (Beyer et al.,
    "Better plain ViT baselines for ImageNet-1k", 2022). Numbers of another dtype are converted to the weights'.
    """

    output_layers = ("output",)

    def __init__(
        self,
        *,
        image: int,
        channels: int,
        patch: int,
        layers: int,
        width: int,
        heads: int,
        kv_heads: int,
        hidden: int,
        classes: int,
        qk_norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.width = width
        self.shape = (channels, image, image)
        self.rotary = GridRotary(width // heads, image // patch)
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        scale = (2 * layers) ** -0.5  # as in the GPT
        self.blocks = nn.ModuleList(
            Block(width, heads, kv_heads, hidden, qk_norm, dropout, scale, causal=False) for _ in range(layers)
        )
        self.norm = RMSNorm(width)
        self.output = Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.end(self.middle(self.begin(images), range(len(self.blocks)), images))

    def plan(self) -> "Plan":
        """Where it may be cut: matrices of blocks as the GPT's; the few outputs are not worth it."""
        return self.plan_with(("patches",), {name: word for name, word in TENSOR.items() if name.startswith("blocks.")})

    def begin(self, images: Tensor) -> Tensor:
        """What goes into the first block: (B, patches, width)."""
        if images.shape[1:] != self.shape:
            raise ValueError(f"images of shape {tuple(images.shape[1:])}, and the model is for {self.shape}")
        return cast(Tensor, self.patches(images.to(self.patches.weight.dtype))).flatten(2).transpose(1, 2)

    def middle(self, x: Tensor, layers: range, images: Tensor) -> Tensor:
        """Some of the blocks, after another: (B, patches, width) in and out."""
        rotations = self.rotary.table(0, x.shape[1], x.device, x.dtype)
        for layer in layers:
            x = self.blocks[layer](x, rotations)
        return x

    def hidden(self, images: Tensor) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and number format of what goes from block to block."""
        return (images.shape[0], self.rotary.side**2, self.width), next(self.parameters()).dtype

    def end(self, x: Tensor) -> Tensor:
        """Logits, of what the last block gives."""
        return cast(Tensor, self.output(self.norm(x).mean(1)))


def build_vit(model: Model, *, vocabulary: int) -> ViT:
    """The vision transformer of the run file; `vocabulary`: classes of the data, 0 if it does not tell."""
    check_model(model, vocabulary)
    return ViT(
        image=model.image,
        channels=model.channels,
        patch=model.patch,
        layers=model.layers,
        width=model.width,
        heads=model.heads,
        kv_heads=key_value_heads(model),
        hidden=hidden_width(model),
        classes=class_count(model, vocabulary),
        qk_norm=model.qk_norm,
        dropout=model.dropout,
    )
