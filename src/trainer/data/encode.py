"""Documents to token files: read, tokenized and written as a stream. No torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.description import Split
from trainer.data.progress import Progress
from trainer.data.reading import Piece, divided, held_out, read_pieces, tail_is_held_out
from trainer.data.sources import Sources
from trainer.data.token_files import TokenWriter
from trainer.data.tokenize import JsonTokenizer, Tokenizer
from trainer.schema import Data

_BATCH_CHARACTERS = 1 << 20
_BATCH_PIECES = 256


def write_splits(data: Data, sources: Sources, tokenizer: Tokenizer, folder: Path) -> tuple[Split, Split]:
    """Writes the files of both splits into `folder`; memory does not depend on how much there is."""
    progress = Progress("preparing data", sum(Path(path).stat().st_size for path in sources.files))
    train, validation = TokenWriter(folder, "train"), TokenWriter(folder, "validation")
    try:
        number = 0
        tail = tail_is_held_out(data, sources)
        for ids, piece in _encoded(data, sources.kind, sources.train, tokenizer, tail):
            writer = validation if (number > 0 if tail else held_out(number, data)) else train
            writer.append(ids, piece.text, last=piece.last, end=tokenizer.end)
            number += piece.last
            progress.add(piece.read)
        for ids, piece in _encoded(data, sources.kind, sources.validation, tokenizer):
            validation.append(ids, piece.text, last=piece.last, end=tokenizer.end)
            progress.add(piece.read)
        return train.close(), validation.close()
    finally:
        progress.close()
        for writer in (train, validation):
            writer.abandon()


def _encoded(
    data: Data, kind: str, files: list[str], tokenizer: Tokenizer, tail: bool = False
) -> Iterator[tuple[NDArray[Any], Piece]]:
    """Yield ids and the piece they are of. `tail`: the end of the one file is a document of its own."""
    decode = isinstance(tokenizer, JsonTokenizer)
    pieces = read_pieces(kind, files, data.field, ids=tokenizer.identity == "ids", decode=decode, binary=data.binary)
    if tail:
        pieces = (piece for piece, _ in divided(pieces, data, Path(files[0]).stat().st_size))
    if isinstance(tokenizer, JsonTokenizer):
        yield from _encoded_in_batches(pieces, tokenizer)
        return
    for piece in pieces:
        if isinstance(piece.content, bytes):
            yield np.frombuffer(piece.content, np.uint8), piece
        else:
            yield np.array(piece.content, np.int64), piece


def _encoded_in_batches(pieces: Iterator[Piece], tokenizer: JsonTokenizer) -> Iterator[tuple[NDArray[Any], Piece]]:
    """Many pieces at a time, so that the tokenizer can use all cores."""
    batch: list[Piece] = []
    characters = 0

    def flush() -> Iterator[tuple[NDArray[Any], Piece]]:
        for ids, piece in zip(tokenizer.encode_batch([str(p.content) for p in batch]), batch, strict=True):
            yield np.array(ids, np.int64), piece
        batch.clear()

    for piece in pieces:
        batch.append(piece)
        characters += len(piece.content)
        if characters >= _BATCH_CHARACTERS or len(batch) >= _BATCH_PIECES:
            yield from flush()
            characters = 0
    yield from flush()
