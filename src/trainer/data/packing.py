"""Token files cut into samples of a fixed number of tokens, read through a memory map."""

import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.description import Split, paths
from trainer.data.source import Indices

if TYPE_CHECKING:
    from torch import Tensor

NOT_COUNTED = -100  # the label that torch's cross entropy leaves out


class TokenSource:
    """Sample i has the tokens [i * S, i * S + S) of a split, and as labels the tokens one further.

    There are ceil((n - 1) / S) samples of n tokens, so every token but the first is a label exactly once; the last
    sample is filled up with token 0 and label -100. Batches: "tokens" and "labels", int64 (B, S). With
    `mask_documents` also "documents", int64 (B, S): the number of the token's document inside its sample (filling is
    a document of its own), and labels that would predict the first token of the next document are -100, since nothing
    a document holds can tell what the next one begins with.

    Nothing is loaded: pages come and go as the system sees fit. `scattered` says that samples are read in random
    order, so that reading ahead is a waste. Pickles as its arguments.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        split: Split,
        sequence: int,
        *,
        mask_documents: bool = False,
        scattered: bool = False,
    ) -> None:
        assert split.tokens >= 2, "a split without a single label"
        self._arguments = (folder, name, split, sequence, mask_documents, scattered)
        self.tokens_per_sample = sequence
        tokens, documents = paths(folder, name)
        self._tokens = _mapped(tokens, split.dtype, scattered)
        self._starts = _mapped(documents, "<u8", scattered)[:-1] if mask_documents else None
        self._full, self._remainder = divmod(split.tokens - 1, sequence)
        # row i: the sequence + 1 tokens of sample i; rows overlap by one
        self._windows = np.lib.stride_tricks.as_strided(
            self._tokens,
            (self._full, sequence + 1),
            (sequence * self._tokens.itemsize, self._tokens.itemsize),
            writeable=False,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, self._arguments

    def __len__(self) -> int:
        return self._full + (self._remainder > 0)

    def fetch(self, indices: Indices, epoch: int = 0) -> "dict[str, Tensor]":
        """The samples as one batch; the epoch makes no difference."""
        import torch

        rows = np.asarray(indices, dtype=np.int64)
        if self._remainder and (rows == self._full).any():
            tokens, labels = self._with_last(rows)
        else:
            window = self._windows[rows]
            tokens, labels = window[:, :-1].astype(np.int64), window[:, 1:].astype(np.int64)
        batch = {"tokens": torch.from_numpy(tokens), "labels": torch.from_numpy(labels)}
        if self._starts is not None:
            batch["documents"] = torch.from_numpy(self._documents(rows, labels, self._starts))
        return batch

    def _with_last(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        sequence = self.tokens_per_sample
        last = rows == self._full
        window = np.zeros((len(rows), sequence + 1), np.int64)
        window[~last] = self._windows[rows[~last]]
        window[last, : self._remainder + 1] = self._tokens[self._full * sequence :]
        tokens, labels = window[:, :-1].copy(), window[:, 1:].copy()
        tokens[last, self._remainder :] = 0
        labels[last, self._remainder :] = NOT_COUNTED
        return tokens, labels

    def _documents(
        self, rows: NDArray[np.int64], labels: NDArray[np.int64], starts: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """Numbers of the documents; sets the labels across two documents to -100."""
        sequence = self.tokens_per_sample
        first = rows * sequence
        # keys of the map's own type: any other would convert (and so load) the whole map
        low = np.searchsorted(starts, first.astype(np.uint64), "right")
        high = np.searchsorted(starts, (first + sequence).astype(np.uint64), "right")
        counts = high - low
        row = np.repeat(np.arange(len(rows)), counts)
        # number of each boundary inside its sample, then where it lies: 1 .. sequence behind the sample's first token
        within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        place = starts[low[row] + within].astype(np.int64) - first[row]
        labels[row, place - 1] = NOT_COUNTED
        marks = np.zeros((len(rows), sequence + 1), np.int64)
        marks[row, place] = 1
        if self._remainder:
            marks[rows == self._full, self._remainder] += 1
        return marks.cumsum(axis=1)[:, :-1].copy()


def _reopened(
    folder: Path, name: str, split: Split, sequence: int, mask_documents: bool, scattered: bool
) -> TokenSource:
    return TokenSource(folder, name, split, sequence, mask_documents=mask_documents, scattered=scattered)


def _mapped(path: Path, dtype: str, scattered: bool) -> NDArray[Any]:
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if scattered and hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, dtype)
