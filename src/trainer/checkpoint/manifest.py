"""The manifest of a checkpoint: every file with size and SHA-256, written last, guarded by a digest of itself."""

import hashlib
import json
import math
import os
import re
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from trainer.checkpoint.files import Damaged, open_file, regular_files
from trainer.safe_open import Identity

MANIFEST = "manifest.json"
LARGEST_BYTES = 64 << 20  # a manifest of 100,000 ranks has 16 MB
_FORMAT = 1
_STEP = re.compile(r"\.?step-(\d{8,})(\.old)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# what this process has verified, so that a file that is replaced before it is loaded is noticed
_verified: dict[tuple[Path, str], Identity] = {}


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
    """Return the manifest of `folder`.

    Raises `Damaged` if it is missing, is not byte for byte what was written, or is of another step than the folder's
    name says.
    """
    with open_file(folder, MANIFEST) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_BYTES:
            raise Damaged(folder, MANIFEST, f"has {size:,} bytes; a manifest has at most {LARGEST_BYTES:,}")
        try:
            data = file.read(LARGEST_BYTES + 1)
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
    if not isinstance(body, dict) or body.get("format") != _FORMAT:
        seen = body.get("format") if isinstance(body, dict) else None
        raise Damaged(folder, MANIFEST, f"has format {seen!r}, which this version does not read")
    manifest = _checked(folder, body)
    named = _STEP.fullmatch(folder.name)
    if named and int(named[1]) != manifest.step:
        raise Damaged(folder, MANIFEST, f"is of step {manifest.step}, not of step {int(named[1])}")
    return manifest


def has_file(folder: Path, name: str) -> bool:
    """Return whether `name` is a file of the checkpoint `folder`, as its manifest says.

    Only a folder that is no checkpoint, since it was not made by a `Store`, has no manifest; there the file decides.
    """
    if os.path.lexists(folder / MANIFEST):
        return name in read_manifest(folder).files
    return os.path.lexists(folder / name)


def digest_and_sync(folder: Path, name: str) -> tuple[int, str]:
    """Return size and SHA-256 of a file that was just written, and make it durable."""
    with open_file(folder, name) as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def check_names(folder: Path) -> Manifest:
    """Compare the files of a checkpoint with its manifest by name, kind and size, and read none of them.

    Raises `Damaged` for the first that is missing, not listed, no regular file, or of another size.
    """
    manifest = read_manifest(folder)
    there = set(regular_files(folder))
    for name in sorted(there - manifest.files.keys() - {MANIFEST}):
        raise Damaged(folder, name, f"is not listed in {MANIFEST}")
    for name, (size, _) in manifest.files.items():
        if name not in there:
            raise Damaged(folder, name, "is missing")
        found = os.lstat(folder / name).st_size
        if found != size:
            raise Damaged(folder, name, f"is damaged: {found:,} bytes instead of {size:,}")
    return manifest


def verify(folder: Path) -> Manifest:
    """Read and hash every file of a checkpoint; `Damaged` names the first that is not what was written.

    A load right after it finds the files in the page cache: the disk is read once.
    """
    manifest = check_names(folder)
    for name, (_, expected) in manifest.files.items():
        with open_file(folder, name) as file:
            before = Identity.of(os.fstat(file.fileno()))
            try:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise Damaged(folder, name, f"cannot be read: {error.strerror}") from error
            if digest != expected:
                raise Damaged(folder, name, "is damaged: its content does not match its SHA-256")
            if Identity.of(os.fstat(file.fileno())) != before:
                raise Damaged(folder, name, "changed while it was read")
        _verified[folder.absolute(), name] = before
    return manifest


def open_verified(folder: Path, name: str) -> BufferedReader:
    """Open a file for loading. Raises `Damaged` if it changed after this process verified it."""
    file = open_file(folder, name)
    known = _verified.get((folder.absolute(), name))
    if known is not None and Identity.of(os.fstat(file.fileno())) != known:
        file.close()
        raise Damaged(folder, name, "changed after it was verified")
    return file


def _checked(folder: Path, body: dict[str, Any]) -> Manifest:
    """Return the manifest of a `body` whose digest is right, if it also says what a manifest says."""
    wrong = Damaged(folder, MANIFEST, "has the right digest, but was not written by this trainer")
    step, sequence, saved, meta = (body.get(key) for key in ("step", "sequence", "saved", "meta"))
    entries = body.get("files")
    if not (_is_count(step) and _is_count(sequence) and isinstance(meta, dict) and isinstance(entries, dict)):
        raise wrong
    if isinstance(saved, bool) or not isinstance(saved, int | float) or not math.isfinite(saved):
        raise wrong
    files: dict[str, tuple[int, str]] = {}
    for name, entry in entries.items():
        size, digest = (entry.get("bytes"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
        if not _is_count(size) or not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise wrong
        if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name or name == MANIFEST:
            raise Damaged(folder, MANIFEST, f"lists {name!r}, which is no file of a checkpoint")
        files[name] = (size, digest)
    return Manifest(step, sequence, saved, files, meta)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
