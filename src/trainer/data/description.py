"""What a folder of token files holds, as its data.json says, and where a run finds the folder. No torch, no numpy.

A split "train" or "validation" is two files: `<split>.bin`, ids as little-endian uint16, or uint32 where one is above
65535; and `<split>.documents`, uint64: the position of each document's first token, and the number of tokens last.
"""

import json
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

from trainer.schema import Data

VERSION = 1
NARROW, WIDE = "<u2", "<u4"
_BYTES = {NARROW: 2, WIDE: 4}
_DESCRIPTION = "data.json"
_POINTER = "data.location"


class Split(NamedTuple):
    """What a split holds. `text_bytes` are the bytes of text its tokens stand for (0 for data given as ids)."""

    tokens: int
    documents: int
    text_bytes: int
    largest_id: int
    dtype: str
    digest: str

    def fits(self, folder: Path, name: str) -> bool:
        """Whether the two files have the sizes that this says."""
        try:
            sizes = [path.stat().st_size for path in paths(folder, name)]
        except OSError:
            return False
        return sizes == [self.tokens * _BYTES[self.dtype], (self.documents + 1) * 8]


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
    zlib_bits_per_byte: float | None


def paths(folder: Path, name: str) -> tuple[Path, Path]:
    """The two files of a split."""
    return folder / f"{name}.bin", folder / f"{name}.documents"


def read_description(folder: Path) -> Prepared | None:
    """What data.json in `folder` says; None if there is none, or the files are not as it says."""
    try:
        stored = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
        if stored.pop("version") != VERSION:
            return None
        stored["train"] = Split(**stored["train"])
        stored["validation"] = Split(**stored["validation"])
        found = Prepared(folder=folder, **stored)
        whole = found.train.fits(folder, "train") and found.validation.fits(folder, "validation")
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return found if whole else None


def write_description(folder: Path, found: Prepared) -> None:
    """Writes data.json: whole or not at all."""
    stored: dict[str, Any] = {"version": VERSION, **found._asdict()}
    del stored["folder"]
    stored["train"], stored["validation"] = found.train._asdict(), found.validation._asdict()
    _replace(folder / _DESCRIPTION, json.dumps(stored, indent=1) + "\n")


def located(data: Data, folder: Path) -> Path:
    """Where the token files of the run in `folder` lie: inside it, or with `data.cache` where `point` said."""
    if not data.cache:
        return folder / "data"
    try:
        return Path((folder / _POINTER).read_text(encoding="utf-8"))
    except OSError:
        return Path(data.cache).expanduser().absolute()


def point(folder: Path, here: Path) -> None:
    """Notes in the run's folder which folder of `data.cache` is its own."""
    path = folder / _POINTER
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != str(here):
        _replace(path, str(here))


def partial_name(path: Path) -> Path:
    """A name beside `path` that no other process uses."""
    return path.with_name(f"{path.name}.partial-{socket.gethostname()}-{os.getpid()}")


def _replace(path: Path, content: str) -> None:
    partial = partial_name(path)
    try:
        partial.write_text(content, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
