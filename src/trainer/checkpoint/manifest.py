"""The manifest of a checkpoint: every file with size and SHA-256, written last, guarded by a digest of itself."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

MANIFEST = "manifest.json"
_FORMAT = 1


class Damaged(Exception):
    """A checkpoint that is not what was written: `file` inside the folder `path`, and `why`."""

    def __init__(self, path: Path, file: str, why: str) -> None:
        super().__init__(f"{path / file} {why}")
        self.path = path
        self.file = file
        self.why = why


class Manifest(NamedTuple):
    """What a manifest says.

    `sequence` counts the commits of a run folder, so that the newest is known even after a resume from an older step;
    `saved` is in seconds since 1970; `files` maps a relative name to (bytes, hexadecimal SHA-256).
    """

    step: int
    sequence: int
    saved: float
    files: dict[str, tuple[int, str]]
    meta: dict[str, Any]

    @property
    def size(self) -> int:
        """Bytes of all files, without the manifest's own."""
        return sum(size for size, _ in self.files.values())


def _render(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, indent=1, sort_keys=True, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"sha256": "{digest}", "body":\n{text}\n}}\n'.encode()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes and syncs the manifest of `folder`. ValueError for a meta that JSON cannot hold (NaN, say)."""
    body = {
        "format": _FORMAT,
        "step": manifest.step,
        "sequence": manifest.sequence,
        "saved": manifest.saved,
        "files": {name: {"bytes": size, "sha256": digest} for name, (size, digest) in manifest.files.items()},
        "meta": manifest.meta,
    }
    # once through JSON, so that what is read back renders to the same bytes (keys that are numbers become strings)
    data = _render(json.loads(json.dumps(body, allow_nan=False)))
    with open(folder / MANIFEST, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of `folder`; `Damaged` when it is missing or not byte for byte what was written."""
    try:
        data = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise Damaged(folder, MANIFEST, "is missing") from None
    except OSError as error:
        raise Damaged(folder, MANIFEST, f"cannot be read: {error.strerror}") from error
    if not data:
        raise Damaged(folder, MANIFEST, "is empty")
    try:
        body = json.loads(data)["body"]
        intact = _render(body) == data
    except (ValueError, KeyError, TypeError, RecursionError):
        intact = False
    if not intact:
        raise Damaged(folder, MANIFEST, "is damaged: it does not match its own digest")
    if body["format"] != _FORMAT:
        raise Damaged(folder, MANIFEST, f"has format {body['format']}, which this version does not read")
    files = {name: (entry["bytes"], entry["sha256"]) for name, entry in body["files"].items()}
    return Manifest(body["step"], body["sequence"], body["saved"], files, body["meta"])


def digest_and_sync(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file that was just written, which is made durable."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def check_sizes(folder: Path) -> Manifest:
    """Looks at the manifest and at every file's presence and size, reading none of them; `Damaged` names the first."""
    manifest = read_manifest(folder)
    for name, (size, _) in manifest.files.items():
        _check_size(folder, name, size)
    return manifest


def verify(folder: Path) -> Manifest:
    """Reads and hashes every file of a checkpoint; `Damaged` names the first that is not what was written.

    A load right after it finds the files in the page cache: the disk is read once.
    """
    manifest = check_sizes(folder)
    for name, (_, expected) in manifest.files.items():
        try:
            with open(folder / name, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise Damaged(folder, name, f"cannot be read: {error.strerror}") from error
        if digest != expected:
            raise Damaged(folder, name, "is damaged: its content does not match its SHA-256")
    return manifest


def _check_size(folder: Path, name: str, size: int) -> None:
    try:
        found = (folder / name).stat().st_size
    except FileNotFoundError:
        raise Damaged(folder, name, "is missing") from None
    except OSError as error:
        raise Damaged(folder, name, f"cannot be read: {error.strerror}") from error
    if found != size:
        raise Damaged(folder, name, f"is damaged: {found:,} bytes instead of {size:,}")
