"""Digests of token files, and their ids and positions compared with their bounds.

The digest of a file is the SHA-256 of the SHA-256 of its parts of 16 MiB, so that all cores can share the work.
"""

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from trainer.data.description import OF_VERSION_1, WIDE, Damaged, Prepared, Split, opened, paths
from trainer.data.progress import Progress

PART_BYTES = 1 << 24
_STEP_BYTES = 1 << 18
_POSITIONS_OF_VERSION_1 = 1 << 14


def digest(path: Path, look: Callable[[bytes, int], None] | None = None, progress: Progress | None = None) -> str:
    """Return the digest of a file; `look` sees all of it, piece by piece, each with its position. Raises `Damaged`."""
    with opened(path) as file, ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
        size = os.fstat(file.fileno()).st_size

        def part(begin: int) -> bytes:
            found = hashlib.sha256()
            for position in range(begin, min(begin + PART_BYTES, size), _STEP_BYTES):
                data = os.pread(file.fileno(), _STEP_BYTES, position)
                if look is not None:
                    look(data, position)
                found.update(data)
            if progress is not None:
                progress.add(min(PART_BYTES, size - begin))
            return found.digest()

        total = hashlib.sha256()
        try:
            for found in pool.map(part, range(0, size, PART_BYTES)):
                total.update(found)
        except OSError as error:
            raise Damaged(path, f"cannot be read: {error.strerror}") from error
    return total.hexdigest()


def compare(found: Prepared) -> None:
    """Read every token file. Raises `Damaged` for the first that is not what was written."""
    progress = Progress("verifying data", sum(sum(split.sizes) for _, split in found.splits()))
    try:
        for name, split in found.splits():
            _verify(found.folder, name, split, progress)
            if split.tokens_digest.startswith(OF_VERSION_1):
                old = _digest_of_version_1(found.folder, name, split, found.tokenizer == "bytes")
                if split.tokens_digest != OF_VERSION_1 + old:
                    raise Damaged(paths(found.folder, name)[0], "is damaged: its content does not match its digest")
    finally:
        progress.close()


def _verify(folder: Path, name: str, split: Split, progress: Progress) -> None:
    tokens, documents = paths(folder, name)

    def bounds(data: bytes, position: int) -> None:
        ids = np.frombuffer(data, split.dtype)
        if len(ids) and int(ids.max()) > split.largest_id:
            first = position // ids.itemsize + int(np.argmax(ids > split.largest_id))
            raise Damaged(tokens, f"has id {ids.max()} from position {first} on, above {split.largest_id}")

    ends: dict[int, tuple[int, int]] = {}

    def rising(data: bytes, position: int) -> None:
        starts = np.frombuffer(data, "<u8")
        if (starts[1:] <= starts[:-1]).any() or int(starts[-1]) > split.tokens:
            raise Damaged(documents, "has positions that do not rise to the number of tokens")
        ends[position] = int(starts[0]), int(starts[-1])

    old = split.tokens_digest.startswith(OF_VERSION_1)
    for path, look, expected in ((tokens, bounds, split.tokens_digest), (documents, rising, split.documents_digest)):
        if digest(path, look, progress) != expected and not old:
            raise Damaged(path, "is damaged: its content does not match its digest")
    joined = [end for position in sorted(ends) for end in ends[position]]
    if joined != sorted(joined) or joined[0] != 0 or joined[-1] != split.tokens:
        raise Damaged(documents, "has positions that do not rise from 0 to the number of tokens")


def _digest_of_version_1(folder: Path, name: str, split: Split, end: bool) -> str:
    """Return the digest that version 1 made while it wrote a split whose positions are in order.

    It took documents one after the other, ids as uint32; with `end` all but the last id of a document as bytes. When
    16,384 positions had come together they went before the ids of their last document, the rest at the end.
    """
    tokens_path, documents_path = paths(folder, name)
    starts = np.fromfile(documents_path, "<u8")
    total = hashlib.sha256()
    dtype, written = np.dtype(split.dtype), 0
    with opened(tokens_path) as file:
        for number in range(len(starts) - 1):
            if number + 1 - written >= _POSITIONS_OF_VERSION_1:
                total.update(starts[written : number + 1].tobytes())
                written = number + 1
            first, last = int(starts[number]), int(starts[number + 1])
            for begin in range(first, last, _STEP_BYTES):
                count = min(_STEP_BYTES, last - begin)
                ids = np.frombuffer(os.pread(file.fileno(), count * dtype.itemsize, begin * dtype.itemsize), dtype)
                ends = end and begin + count == last
                body = ids[:-1] if ends else ids
                total.update((body.astype(np.uint8) if end else body.astype(WIDE)).data)
                if ends:
                    total.update(ids[-1:].astype(WIDE).data)
    total.update(starts[written:].tobytes())
    return total.hexdigest()
