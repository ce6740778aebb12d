"""Decoder-only transformer: pre-norm RMSNorm, rotary positions, SwiGLU, grouped-query attention."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.errors import UserError
from trainer.models.attention import Attention, LayerCache, Rotary
from trainer.models.check import check_model, hidden_width, key_value_heads, vocabulary_size
from trainer.models.layers import BigramEmbedding, Embedding, Linear, RMSNorm, SwiGLU
from trainer.schema import Model

if TYPE_CHECKING:
    from trainer.models.plan import Plan


class Cache:
    """What decoding keeps between calls: keys and values of every layer, and the last token (B, 1)."""

    def __init__(self, layers: int, batch: int, length: int) -> None:
        self.layers = [LayerCache(length) for _ in range(layers)]
        self.batch = batch
        self.length = length
        self.last: Tensor | None = None

    def forget(self, count: int, last: Tensor) -> None:
        """Drops the newest `count` tokens, which were padding; `last` (B, 1) is the one before them."""
        self.last = last
        for layer in self.layers:
            layer.used -= count


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


TENSOR = {
    "embedding": "vocabulary",
    "bigram": "vocabulary",
    "blocks.*.attention_norm": "sequence",
    "blocks.*.attention": "whole",
    "blocks.*.attention.query": "column",
    "blocks.*.attention.key": "column",
    "blocks.*.attention.value": "column",
    "blocks.*.attention.query_norm": "heads",
    "blocks.*.attention.key_norm": "heads",
    "blocks.*.attention.output": "row",
    "blocks.*.feed_forward_norm": "sequence",
    "blocks.*.feed_forward": "whole",
    "blocks.*.feed_forward.gate": "column",
    "blocks.*.feed_forward.up": "column",
    "blocks.*.feed_forward.down": "row",
    "norm": "sequence",
    "output": "vocabulary",
}


class Transformer(nn.Module):
    """What models of `blocks` share: the number format of their attention, and where they may be cut."""

    blocks: nn.ModuleList

    @property
    def attention_dtype(self) -> torch.dtype | None:
        """Number format of the attention itself, whatever the projections around it use; None: theirs."""
        return cast(Block, self.blocks[0]).attention.compute_dtype

    @attention_dtype.setter
    def attention_dtype(self, dtype: torch.dtype | None) -> None:
        for block in self.blocks:
            cast(Block, block).attention.compute_dtype = dtype

    def plan_with(self, first: tuple[str, ...], tensor: Mapping[str, str]) -> "Plan":
        """Blocks between the methods `begin` and `end`; `first`: modules before them; norms of queries and keys that
        there are not are left out of `tensor`."""
        from trainer.models.plan import Plan

        absent = set()
        if cast(Block, self.blocks[0]).attention.query_norm is None:
            absent = {"blocks.*.attention.query_norm", "blocks.*.attention.key_norm"}
        return Plan(
            [f"blocks.{layer}" for layer in range(len(self.blocks))],
            begin="begin",
            middle="middle",
            end="end",
            hidden="hidden",
            first=first,
            last=("norm", "output"),
            tensor={name: word for name, word in tensor.items() if name not in absent},
        )


class GPT(Transformer):
    """Logits (B, S, vocabulary) of the token after each of `tokens` (B, S).

    `part` (index, count): which of how many equal parts of the tokens this rank computes, where several share a
    sequence; logits are those of its part. `multiple`: by what the tokens of a forward divide.

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
        self.width = width
        self.dropout = dropout
        self.part = (0, 1)
        self.multiple = 1
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

    def new_cache(self, batch: int, length: int) -> Cache:
        """An empty cache for `batch` texts of up to `length` tokens."""
        return Cache(len(self.blocks), batch, length + self.multiple - 1)

    def cut_tokens(self, index: int, count: int, gather: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        """From now on this rank computes part `index` of `count` of the tokens; `gather`: see Attention. With a cache
        it computes all."""
        self.part = (index, count)
        for block in self.blocks:
            cast(Block, block).attention.gather = gather

    def own_tokens(self, x: Tensor) -> Tensor:
        """Of (B, S, ...) what belongs to this rank's part of the tokens."""
        index, count = self.part
        if x.shape[1] % count:
            raise UserError(
                f"sequences of {x.shape[1]} tokens cannot be split into {count} equal parts",
                "Change the length of the samples, or parallel.context.",
                2,
            )
        return x.chunk(count, 1)[index] if count > 1 else x

    def forward(self, tokens: Tensor, documents: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """`documents` (B, S): number of each token's document; tokens see only their own document. With a `cache`,
        `tokens` follow those of the calls before.

        Raises ValueError for documents together with a cache, or for more tokens than the cache has room for.
        """
        return self.padded(self._through, tokens, documents, cache)

    def padded(
        self,
        run: Callable[[Tensor, Tensor | None, Cache | None], Tensor],
        tokens: Tensor,
        documents: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """What `run` gives for the tokens, which with a cache may have to be more than they are."""
        padding = -tokens.shape[1] % self.multiple
        if cache is None or not padding:
            return run(tokens, documents, cache)
        logits = run(functional.pad(tokens, (0, padding)), documents, cache)  # behind all that counts and sees it not
        cache.forget(padding, tokens[:, -1:])
        return logits[:, : tokens.shape[1]]

    def _through(self, tokens: Tensor, documents: Tensor | None, cache: Cache | None) -> Tensor:
        layers = range(len(self.blocks))
        return self.end(self.middle(self.begin(tokens, documents, cache), layers, tokens, documents, cache))

    def plan(self) -> "Plan":
        """Where it may be cut."""
        tensor = {name: word for name, word in TENSOR.items() if name != "bigram" or self.bigram is not None}
        return self.plan_with(("embedding", "bigram"), tensor)

    def begin(self, tokens: Tensor, documents: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """What goes into the first block: (B, S, width)."""
        previous = None
        if cache is not None:
            _positions(tokens, documents, cache, 0)
            previous, cache.last = cache.last, tokens[:, -1:]
        own = self.own_tokens if cache is None else _all
        x = self.embedding(own(tokens))
        if self.bigram is not None:
            x = x + self.bigram(own(self.bigram.row_of(tokens, documents, previous)))
        return functional.dropout(x, self.dropout) if self.dropout and self.training else cast(Tensor, x)

    def middle(
        self, x: Tensor, layers: range, tokens: Tensor, documents: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Some of the blocks, after another: (B, S, width) in and out."""
        start, end = _positions(tokens, documents, cache, layers.start)
        rotations = self.rotary.table(start, end, x.device, x.dtype)
        if cache is None and self.part[1] > 1:
            length = end // self.part[1]
            first = self.part[0] * length
            rotations = rotations[first : first + length]
            mask: Tensor | None = _mask_of_part(tokens, documents, first, length)
        else:
            mask = _mask(tokens, documents, start)
        for layer in layers:
            x = self.blocks[layer](x, rotations, mask, cache.layers[layer] if cache is not None else None)
        return x

    def end(self, x: Tensor) -> Tensor:
        """Logits, of what the last block gives."""
        return cast(Tensor, self.output(self.norm(x)))

    def hidden(
        self, tokens: Tensor, documents: Tensor | None = None, cache: Cache | None = None
    ) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and type of what goes from block to block."""
        parts = self.multiple * (self.part[1] if cache is None else 1)
        return (tokens.shape[0], tokens.shape[1] // parts, self.width), next(self.parameters()).dtype


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


def _positions(tokens: Tensor, documents: Tensor | None, cache: Cache | None, layer: int) -> tuple[int, int]:
    """Positions of the tokens, start and end; `layer`: whose keys and values are counted."""
    if cache is None:
        return 0, tokens.shape[1]
    if documents is not None:
        raise ValueError("a cache holds one text per row: documents cannot be told apart in it")
    used = cache.layers[layer].used
    end = used + tokens.shape[1]
    if end > cache.length or tokens.shape[0] != cache.batch:
        raise ValueError(
            f"the cache is for {cache.batch} texts of {cache.length} tokens, not {tokens.shape[0]} of {end}"
        )
    return used, end


def _mask(tokens: Tensor, documents: Tensor | None, start: int) -> Tensor | None:
    """Bool mask for scaled_dot_product_attention; None where plain causal attention is meant."""
    length = tokens.shape[1]
    if documents is not None:
        same = documents.unsqueeze(2) == documents.unsqueeze(1)
        return same.tril_().unsqueeze(1)
    if start == 0 or length == 1:
        return None
    return torch.ones(length, start + length, dtype=torch.bool, device=tokens.device).tril_(start)


def _mask_of_part(tokens: Tensor, documents: Tensor | None, first: int, length: int) -> Tensor:
    """The rows of the mask for `length` tokens from position `first` on, over the keys of all (B, S) tokens."""
    rows = torch.ones(length, tokens.shape[1], dtype=torch.bool, device=tokens.device).tril_(first)
    if documents is None:
        return rows
    same = documents[:, first : first + length].unsqueeze(2) == documents.unsqueeze(1)
    return same.logical_and_(rows).unsqueeze(1)


def _all(x: Tensor) -> Tensor:
    return x
