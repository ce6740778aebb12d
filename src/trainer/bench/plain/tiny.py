"""The model and data of the start-up comparison; the trainer is given them as a user's own. Knows nothing of ours."""

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LAYERS = 256, 64, 4, 4
SEQUENCE, BATCH, UPDATES = 32, 8, 2  # a power of two of tokens, so that any order of the divisions gives the same bits


class Block(nn.Module):
    """Attention and a two-layer network, each after a norm and added to its input; (B, S, 64) -> the same."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, _ = hidden.shape
        heads = self.qkv(self.attention_norm(hidden)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        wide: Tensor = functional.gelu(self.up(self.norm(hidden)))
        return hidden + self.down(wide)  # type: ignore[no-any-return]


class Tiny(nn.Module):
    """A small GPT; (B, S) ids -> (B, S, 256) logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(SEQUENCE, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens) + self.positions.weight
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))  # type: ignore[no-any-return]


class Samples:
    """Rows of S + 1 ids, those of all updates."""

    tokens_per_sample = SEQUENCE

    def __init__(self, count: int = BATCH * UPDATES) -> None:
        generator = torch.Generator().manual_seed(1)
        self.rows = torch.randint(0, VOCABULARY, (count, SEQUENCE + 1), generator=generator)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensor:
        return self.rows[index]


def loss_sum(model: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy of the next id, summed, and how many ids were counted."""
    tokens, labels = rows[:, :-1], rows[:, 1:]
    total = functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), reduction="sum")
    return total, torch.tensor(labels.numel())
