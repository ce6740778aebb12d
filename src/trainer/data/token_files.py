"""Writes token files in constant memory. No torch."""

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from trainer.data.description import NARROW, WIDE, Split, paths

_BUFFER = 1 << 20
_OFFSETS = 1 << 14


class TokenWriter:
    """Appends tokens and documents to the files of a split."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path, documents = paths(folder, name)
        self._tokens: BinaryIO = open(self._path, "wb", buffering=_BUFFER)  # noqa: SIM115  # closed by close()
        self._documents: BinaryIO = open(documents, "wb", buffering=_BUFFER)  # noqa: SIM115
        self._dtype = NARROW
        self._starts: list[int] = []
        self._count = self._number = self._text = 0
        self._largest = -1
        self._begun = False

    def append(self, ids: NDArray[Any], text_bytes: int, *, last: bool, end: int | None) -> None:
        """Adds ids to the document that is open; `last` closes it, with `end` behind it where that is given.

        A document without tokens leaves no trace, not even its end.
        """
        self._text += text_bytes
        if len(ids):
            if not self._begun:
                self._begun = True
                self._starts.append(self._count)
                if len(self._starts) >= _OFFSETS:
                    self._write_starts()
            self._write(ids, int(ids.max()))
        if last and self._begun:
            self._begun = False
            self._number += 1
            if end is not None:
                self._write(np.array([end]), end)

    def close(self) -> Split:
        """Complete both files; the digests are left to whoever publishes them."""
        assert not self._begun, "the last document was not ended"
        self._starts.append(self._count)
        self._write_starts()
        self.abandon()
        return Split(self._count, self._number, self._text, self._largest, self._dtype, "", "")

    def abandon(self) -> None:
        """Closes the files as they are."""
        self._tokens.close()
        self._documents.close()

    def _write(self, ids: NDArray[Any], largest: int) -> None:
        if largest > self._largest:
            self._largest = largest
            if largest > np.iinfo(NARROW).max and self._dtype == NARROW:
                self._widen()
        self._tokens.write(ids.astype(self._dtype).data)
        self._count += len(ids)

    def _write_starts(self) -> None:
        content = np.array(self._starts, dtype="<u8").tobytes()
        self._documents.write(content)
        self._starts.clear()

    def _widen(self) -> None:
        """Rewrites what was written as uint16 as uint32: once, when the first id above 65535 comes."""
        self._tokens.close()
        narrow = self._path.rename(self._path.with_suffix(".narrow"))
        self._tokens = open(self._path, "wb", buffering=_BUFFER)  # noqa: SIM115
        self._dtype = WIDE
        with open(narrow, "rb") as file:
            while chunk := file.read(_BUFFER):
                self._tokens.write(np.frombuffer(chunk, NARROW).astype(WIDE).data)
        narrow.unlink()
