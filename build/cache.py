"""What an earlier build made, keyed by everything that it was made from.

Safe to delete at any moment: an entry appears whole (written beside its name, then renamed) and carries a checksum, so
that a damaged one is made anew.
"""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

_CHECK = hashlib.sha256().digest_size


def key_of(*parts: str | bytes) -> str:
    """SHA-256 (hex) over the parts and their lengths; text counts as UTF-8."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


class Cache:
    """Bytes by key, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        """The bytes of `key` (a hex digest), or None where there are none or they are damaged."""
        try:
            entry = self._path(key).read_bytes()
        except OSError:
            return None
        check, data = entry[:_CHECK], entry[_CHECK:]
        return data if hashlib.sha256(data).digest() == check else None

    def put(self, key: str, data: bytes) -> None:
        """Keep `data`; a cache that can't be written to is no error, the next build only takes longer."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        except OSError:
            return
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(data).digest() + data)
            Path(temporary).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
