"""Self-attention with rotary positions, grouped key/value heads and a cache for decoding."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.models.layers import Linear, RMSNorm


class Rotary:
    """Rotations by position (Su et al., "RoFormer", 2021), as complex numbers of pairs of neighbouring values.

    Tables are made in float64 and kept in the accuracy asked for; they are no state, so nothing saves or moves them.
    A complex product takes 0.28 ms forward and backward where sines and cosines of halves take 0.75 (CPU).
    """

    def __init__(self, head: int, base: float) -> None:
        self.head = head
        self.base = base
        self._tables: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def table(self, start: int, end: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Rotations of positions start..end-1: (end - start, 1, head / 2), complex128 for float64, else complex64."""
        kind = torch.complex128 if dtype == torch.float64 else torch.complex64
        table = self._tables.get((device, kind))
        if table is None or table.shape[0] < end:
            length = max(end, 2 * table.shape[0] if table is not None else 0)
            table = self._make(length).to(device, kind)
            self._tables[device, kind] = table
        return table[start:end]

    def _make(self, length: int) -> Tensor:
        pairs = torch.arange(0, self.head, 2, dtype=torch.float64, device="cpu")
        positions = torch.arange(length, dtype=torch.float64, device="cpu")
        angles = torch.outer(positions, self.base ** (-pairs / self.head))
        return torch.polar(torch.ones_like(angles), angles).unsqueeze(1)


def rotate(x: Tensor, rotations: Tensor) -> Tensor:
    """`x` (B, S, heads, head), float32 or float64, its pairs of neighbours turned by `rotations` (S, 1, head / 2)."""
    if torch.compiler.is_compiling():  # the compiler has no code for complex numbers, and needs none
        cosine, sine = torch.view_as_real(rotations).unbind(-1)
        a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
        return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).flatten(-2)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotations).flatten(-2)


class LayerCache:
    """Keys and values of one layer for the positions seen: (B, kv_heads, length, head) each, allocated at first use."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.used = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Adds (B, kv_heads, S, head) and returns all that is held."""
        if self.keys is None or self.values is None:
            shape = (*keys.shape[:2], self.length, keys.shape[3])
            self.keys, self.values = keys.new_empty(shape), values.new_empty(shape)
        end = self.used + keys.shape[2]
        self.keys[:, :, self.used : end] = keys
        self.values[:, :, self.used : end] = values
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Attention(nn.Module):
    """(B, S, width) -> (B, S, width). `compute_dtype` is the number format of the attention itself; None: as the
    projections'. Not `causal`: every position sees all. `gather`: gives keys and values of all tokens where this rank
    has a part of them; needs a mask. There are as many heads as the projections give: a rank may have a part of them.
    """

    def __init__(self, width: int, heads: int, kv_heads: int, qk_norm: bool, scale: float, causal: bool = True) -> None:
        super().__init__()
        self.causal = causal
        self.head = width // heads
        self.grouped = kv_heads != heads
        self.compute_dtype: torch.dtype | None = None
        self.gather: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
        self.query = Linear(width, width)
        self.key = Linear(width, kv_heads * self.head)
        self.value = Linear(width, kv_heads * self.head)
        self.output = Linear(width, width, scale)
        self.query_norm = RMSNorm(self.head) if qk_norm else None
        self.key_norm = RMSNorm(self.head) if qk_norm else None

    def forward(
        self, x: Tensor, rotations: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """`rotations` (S, 1, head / 2); `mask` bool, broadcast to (B, heads, S, S of keys), true where attended to;
        without it every position of causal attention sees itself and those before.
        """
        values = self._split(self.value(x)).transpose(1, 2)
        projected = values.dtype
        dtype = self.compute_dtype or projected
        queries = self._place(self.query(x), self.query_norm, rotations, dtype)
        keys = self._place(self.key(x), self.key_norm, rotations, dtype)
        values = values.to(dtype)
        if cache is not None:
            keys, values = cache.append(keys, values)
        elif self.gather is not None:
            keys, values = self.gather(keys, values)
        device = x.device.type
        if self.compute_dtype is not None and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):  # autocast would lower the attention again
                mixed = self._attend(queries, keys, values, mask)
        else:
            mixed = self._attend(queries, keys, values, mask)
        return cast(Tensor, self.output(mixed.transpose(1, 2).flatten(-2).to(projected)))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self.head)

    def _place(self, x: Tensor, norm: RMSNorm | None, rotations: Tensor, dtype: torch.dtype) -> Tensor:
        x = self._split(x)
        if rotations.dtype == torch.complex64:
            x = x.float()
        if norm is not None:
            x = norm(x)
        return rotate(x, rotations).to(dtype).transpose(1, 2)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        causal = self.causal and mask is None and queries.shape[2] > 1
        return functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=causal, enable_gqa=self.grouped
        )
