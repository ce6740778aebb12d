"""Decoder-only transformer: pre-norm RMSNorm, rotary positions, SwiGLU, grouped-query attention."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.models.attention import Attention, LayerCache, Rotary
from trainer.models.check import check_model, hidden_width, key_value_heads, vocabulary_size
from trainer.models.layers import BigramEmbedding, Embedding, Linear, RMSNorm, SwiGLU
from trainer.schema import Model


class Cache:
    """What decoding keeps between calls: keys and values of every layer, and the last token (B, 1)."""

    def __init__(self, layers: int, batch: int, length: int) -> None:
        self.layers = [LayerCache(length) for _ in range(layers)]
        self.batch = batch
        self.length = length
        self.used = 0
        self.last: Tensor | None = None


class Block(nn.Module):
    """x + attention(norm(x)), then x + swiglu(norm(x)); (B, S, width) in and out."""

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int,
        hidden: int,
        qk_norm: bool,
        dropout: float,
        scale: float,
        causal: bool = True,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.attention_norm = RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads, qk_norm, scale, causal)
        self.feed_forward_norm = RMSNorm(width)
        self.feed_forward = SwiGLU(width, hidden, scale)

    def forward(
        self, x: Tensor, rotations: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        x = x + self._drop(self.attention(self.attention_norm(x), rotations, mask, cache))
        return x + self._drop(self.feed_forward(self.feed_forward_norm(x)))

    def _drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout) if self.dropout and self.training else x


class GPT(nn.Module):
    """Logits (B, S, vocabulary) of the token after each of `tokens` (B, S).

    Weights are drawn from torch's global generator in the order of the modules. `output_layers` names the submodules
    that map to the vocabulary, for optimizers that treat them apart.
    """

    output_layers = ("output",)

    def __init__(
        self,
        *,
        vocabulary: int,
        layers: int,
        width: int,
        heads: int,
        kv_heads: int,
        hidden: int,
        tied: bool = False,
        qk_norm: bool = False,
        bigram: int = 0,
        rope_base: float = 10000.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.rotary = Rotary(width // heads, rope_base)
        deviation = 0.02
        self.embedding = Embedding(vocabulary, width, deviation)
        self.bigram = BigramEmbedding(bigram, width, vocabulary, deviation) if bigram else None
        # GPT-2: what is added to the stream 2 * layers times starts smaller by the root of that (Radford et al., 2019)
        scale = (2 * layers) ** -0.5
        self.blocks = nn.ModuleList(
            Block(width, heads, kv_heads, hidden, qk_norm, dropout, scale) for _ in range(layers)
        )
        self.norm = RMSNorm(width)
        self.output = Linear(width, vocabulary)
        if tied:
            self.output.weight = self.embedding.weight

    @property
    def attention_dtype(self) -> torch.dtype | None:
        """Number format of the attention itself, whatever the projections around it use; None: theirs."""
        return cast(Block, self.blocks[0]).attention.compute_dtype

    @attention_dtype.setter
    def attention_dtype(self, dtype: torch.dtype | None) -> None:
        for block in self.blocks:
            cast(Block, block).attention.compute_dtype = dtype

    def new_cache(self, batch: int, length: int) -> Cache:
        """An empty cache for `batch` texts of up to `length` tokens."""
        return Cache(len(self.blocks), batch, length)

    def forward(self, tokens: Tensor, documents: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """`documents` (B, S): number of each token's document; tokens see only their own document. With a `cache`,
        `tokens` follow those of the calls before.

        Raises ValueError for documents together with a cache, or for more tokens than the cache has room for.
        """
        start, end = 0, tokens.shape[1]
        if cache is not None:
            start, end = self._check_cache(tokens, documents, cache)
        x = self._embed(tokens, documents, cache.last if cache is not None else None)
        rotations = self.rotary.table(start, end, x.device, x.dtype)
        mask = _mask(tokens, documents, start)
        for layer, block in enumerate(self.blocks):
            x = block(x, rotations, mask, cache.layers[layer] if cache is not None else None)
        if cache is not None:
            cache.used, cache.last = end, tokens[:, -1:]
        return cast(Tensor, self.output(self.norm(x)))

    def _embed(self, tokens: Tensor, documents: Tensor | None, previous: Tensor | None) -> Tensor:
        x = self.embedding(tokens)
        if self.bigram is not None:
            x = x + self.bigram(tokens, documents, previous)
        return functional.dropout(x, self.dropout) if self.dropout and self.training else cast(Tensor, x)

    def _check_cache(self, tokens: Tensor, documents: Tensor | None, cache: Cache) -> tuple[int, int]:
        if documents is not None:
            raise ValueError("a cache holds one text per row: documents cannot be told apart in it")
        end = cache.used + tokens.shape[1]
        if end > cache.length or tokens.shape[0] != cache.batch:
            raise ValueError(
                f"the cache is for {cache.batch} texts of {cache.length} tokens, not {tokens.shape[0]} of {end}"
            )
        return cache.used, end


def build_gpt(model: Model, *, vocabulary: int) -> GPT:
    """The GPT of the run file; raises UserError for sizes that do not fit together."""
    check_model(model, vocabulary)
    return GPT(
        vocabulary=vocabulary_size(model, vocabulary),
        layers=model.layers,
        width=model.width,
        heads=model.heads,
        kv_heads=key_value_heads(model),
        hidden=hidden_width(model),
        tied=model.tied,
        qk_norm=model.qk_norm,
        bigram=model.bigram,
        rope_base=model.rope_base,
        dropout=model.dropout,
    )


def _mask(tokens: Tensor, documents: Tensor | None, start: int) -> Tensor | None:
    """Bool mask for scaled_dot_product_attention; None where plain causal attention is meant."""
    length = tokens.shape[1]
    if documents is not None:
        same = documents.unsqueeze(2) == documents.unsqueeze(1)
        return same.tril_().unsqueeze(1)
    if start == 0 or length == 1:
        return None
    return torch.ones(length, start + length, dtype=torch.bool, device=tokens.device).tril_(start)
