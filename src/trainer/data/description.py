"""What a folder of token files holds, as its data.json says. No torch, no numpy.

A split "train" or "validation" is two files: `<split>.bin`, ids as little-endian uint16, or uint32 where one is above
65535; and `<split>.documents`, uint64: the position of each document's first token, and the number of tokens last.
data.json has the digests of the four files and one of itself, and is written once.
"""

import hashlib
import json
import os
import socket
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from trainer.safe_open import Unfit, open_regular, read_regular

VERSION = 2
NARROW, WIDE = "<u2", "<u4"
OF_VERSION_1 = "version 1: "
DESCRIPTION = "data.json"
ZLIB = "zlib.json"
_BYTES = {NARROW: 2, WIDE: 4}
_LARGEST_BYTES = 1 << 16


class Split(NamedTuple):
    """What a split holds. `text_bytes` are the bytes of text its tokens stand for (0 for data given as ids).

    `tokens_digest` and `documents_digest` are those of the two files (see trainer.data.digests). In data of version 1
    there is one of both, in the order in which they were written; it is the first, marked by `OF_VERSION_1`.
    """

    tokens: int
    documents: int
    text_bytes: int
    largest_id: int
    dtype: str
    tokens_digest: str
    documents_digest: str

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the two files."""
        return self.tokens * _BYTES[self.dtype], (self.documents + 1) * 8


class Prepared(NamedTuple):
    """A folder of token files.

    `settings` and `sources` are digests of what was asked for and of the files read (paths, sizes, times);
    `fingerprint` is a digest of the tokens themselves.
    """

    folder: Path
    settings: str
    sources: str
    fingerprint: str
    tokenizer: str
    train: Split
    validation: Split

    def splits(self) -> list[tuple[str, Split]]:
        """Name and content of both."""
        return [("train", self.train), ("validation", self.validation)]


class Damaged(Exception):
    """Prepared data that is not what was written: `path` and `why`, to follow it ("is missing")."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = path
        self.why = why


def paths(folder: Path, name: str) -> tuple[Path, Path]:
    """The two files of a split."""
    return folder / f"{name}.bin", folder / f"{name}.documents"


def fingerprint_of(train: Split, validation: Split) -> str:
    """Return a digest of all tokens and document boundaries."""
    told = [train.dtype, train.tokens_digest, train.documents_digest]
    told += [validation.dtype, validation.tokens_digest, validation.documents_digest]
    return hashlib.sha256(" ".join(told).encode()).hexdigest()[:32]


def read_description(folder: Path) -> Prepared:
    """Return what data.json in `folder` says. Raises `Damaged` where it is missing, or is not what was written.

    The token files themselves are compared by `require_sizes` and trainer.data.verified.
    """
    path = folder / DESCRIPTION
    try:
        data = read_regular(path, _LARGEST_BYTES)
    except Unfit as problem:
        raise Damaged(path, str(problem)) from None
    try:
        stored = json.loads(data)
        found = _of_version_1(folder, stored) if stored["version"] == 1 else _of_body(folder, stored, data)
        if not all(_is_right(split) for _, split in found.splits()):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Damaged(path, "is damaged: it is not what was written") from None
    return found


def require_sizes(found: Prepared) -> None:
    """Return when all token files are there with the sizes that they should have. Raises `Damaged`."""
    for name, split in found.splits():
        for file, size in zip(paths(found.folder, name), split.sizes, strict=True):
            _require_size(file, size)


def there(folder: Path) -> bool:
    """Return whether `folder` holds prepared data, whole or not."""
    return os.path.lexists(folder / DESCRIPTION)


def write_description(folder: Path, found: Prepared) -> None:
    """Write data.json: whole or not at all."""
    body: dict[str, Any] = {"version": VERSION, **found._asdict()}
    del body["folder"]
    body["train"], body["validation"] = found.train._asdict(), found.validation._asdict()
    write_whole(folder / DESCRIPTION, _render(body))


def read_zlib(folder: Path) -> float | None:
    """Return what zlib needs for the validation text, in bits per byte; None if nobody has measured it."""
    try:
        value = json.loads(read_regular(folder / ZLIB, _LARGEST_BYTES))
        bits, digest = value["bits_per_byte"], value["sha256"]
        right = isinstance(bits, float) and digest == _sha256(repr(bits))
    except (Unfit, ValueError, TypeError, KeyError, RecursionError):
        return None
    return bits if right else None


def write_zlib(folder: Path, bits: float) -> None:
    """Write the figure beside the data."""
    write_whole(folder / ZLIB, json.dumps({"bits_per_byte": bits, "sha256": _sha256(repr(bits))}) + "\n")


def write_whole(path: Path, content: str) -> None:
    """Write a small text file: whole or not at all."""
    partial = partial_name(path)
    try:
        partial.write_text(content, encoding="utf-8", errors="surrogateescape")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def partial_name(path: Path) -> Path:
    """A name beside `path` that no other process uses."""
    return path.with_name(f"{path.name}.partial-{socket.gethostname()}-{os.getpid()}")


def _render(body: dict[str, Any]) -> str:
    text = json.dumps(body, indent=1)
    return text[:-2] + f',\n "sha256": "{_sha256(text)}"\n}}\n'


def _of_body(folder: Path, stored: dict[str, Any], data: bytes) -> Prepared:
    del stored["sha256"]
    if stored["version"] != VERSION or _render(stored).encode() != data:
        raise ValueError
    del stored["version"]
    stored["train"], stored["validation"] = Split(**stored["train"]), Split(**stored["validation"])
    found = Prepared(folder=folder, **stored)
    if found.fingerprint != fingerprint_of(found.train, found.validation):
        raise ValueError
    return found


def _of_version_1(folder: Path, stored: dict[str, Any]) -> Prepared:
    """Data of a run folder that an earlier version made, with one digest of both files of a split."""
    splits = []
    for name in ("train", "validation"):
        split = stored[name]
        digest = split.pop("digest")
        if not isinstance(digest, str):
            raise TypeError
        splits.append(Split(**split, tokens_digest=OF_VERSION_1 + digest, documents_digest=""))
    texts = [stored[name] for name in ("settings", "sources", "fingerprint", "tokenizer")]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    return Prepared(folder, *texts, *splits)


def _is_right(split: Split) -> bool:
    counts = (split.tokens, split.documents, split.text_bytes, split.largest_id + 1)
    return split.dtype in _BYTES and all(type(count) is int and count >= 0 for count in counts)


def opened(path: Path) -> BufferedReader:
    """Open a file of prepared data. Raises `Damaged` if it is missing or no regular file."""
    try:
        return open_regular(path)
    except Unfit as problem:
        raise Damaged(path, str(problem)) from None


def _require_size(path: Path, size: int) -> None:
    with opened(path) as file:
        found = os.fstat(file.fileno()).st_size
    if found != size:
        raise Damaged(path, f"is damaged: {found:,} bytes instead of {size:,}")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
