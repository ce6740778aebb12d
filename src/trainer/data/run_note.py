"""What a run keeps of its data in its own folder, so that it can be used from elsewhere and without the corpus.

prepared.json says where the token files of each fingerprint lie, which vocabulary the model was built for and which
directory relative paths start at; tokenizer.json is a copy of the tokenizer. No torch, no numpy.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from trainer.data.description import Damaged, Prepared, read_description, there, write_whole
from trainer.data.tokenize import JsonTokenizer, Tokenizer, open_tokenizer
from trainer.errors import UserError
from trainer.safe_open import Unfit, read_regular
from trainer.schema import Data

NOTE = "prepared.json"
TOKENIZER = "tokenizer.json"
_POINTER = "data.location"  # of an earlier version: the folder in data.cache
_LARGEST_BYTES = 1 << 20


class Note(NamedTuple):
    """`folders`: fingerprint -> folder of token files, relative to the run's folder where it lies inside."""

    current: str
    folders: dict[str, str]
    tokenizer: str
    vocabulary: int
    directory: str


def read_note(folder: Path) -> Note | None:
    """Return the note of the run in `folder`; None if it has none. Raises `Damaged`."""
    path = folder / NOTE
    if not os.path.lexists(path):
        return None
    try:
        stored = json.loads(read_regular(path, _LARGEST_BYTES))
        digest = stored.pop("sha256")
        note = Note(**stored)
        right = digest == _digest(note) and all(isinstance(text, str) for text in note.folders.values())
    except (Unfit, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Damaged(path, str(error) if isinstance(error, Unfit) else "is damaged") from None
    if not right:
        raise Damaged(path, "is damaged: it does not match its own digest")
    return note


def write_note(folder: Path, found: Prepared | None, tokenizer: Tokenizer | None, vocabulary: int) -> None:
    """Note what the run in `folder` uses from now on, and keep its tokenizer. `found` is None where the data
    is not made of token files.

    Raises UserError if the folder cannot be written.
    """
    try:
        before = read_note(folder)
    except Damaged:
        before = None
    folders = dict(before.folders) if before else {}
    if found is not None:
        folders[found.fingerprint] = _within(folder, found.folder)
    current, identity = (found.fingerprint, found.tokenizer) if found is not None else ("", "")
    note = Note(current, folders, identity, vocabulary, str(Path.cwd()))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(tokenizer, JsonTokenizer):
            _keep_tokenizer(folder, tokenizer)
        if note != before:
            write_whole(folder / NOTE, json.dumps({**note._asdict(), "sha256": _digest(note)}, indent=1) + "\n")
    except OSError as error:
        raise UserError(
            f"cannot write {folder / NOTE}: {error.strerror}", "Free space there, or choose another --run.folder."
        ) from error


def with_fingerprint(data: Data, folder: Path, fingerprint: str) -> Prepared | None:
    """Return the token files with that fingerprint that the run in `folder` knows of; None if they are gone."""
    for place in _candidates(data, folder, fingerprint):
        if there(place):
            try:
                found = read_description(place)
            except Damaged:
                continue
            if found.fingerprint == fingerprint:
                return found
    return None


def noted_folder(folder: Path, fingerprint: str) -> Path | None:
    """Return where the run in `folder` notes the token files with that fingerprint, whole or not."""
    try:
        note = read_note(folder)
    except Damaged:
        return None
    return folder / note.folders[fingerprint] if note is not None and fingerprint in note.folders else None


def tokenizer_of_run(data: Data, folder: Path, identity: str = "") -> Tokenizer:
    """Return the tokenizer that the run in `folder` was trained with: its own copy, if it has one that fits.

    `identity`: that of the tokenizer that is wanted; "": as the run's note says. Raises UserError if there is none.
    """
    if data.tokenizer in ("bytes", "ids"):
        return open_tokenizer(data.tokenizer)
    copy = folder / TOKENIZER
    if not identity:
        try:
            note = read_note(folder)
        except Damaged as problem:
            raise UserError(str(problem), f"Remove {problem.path} and start `trainer train` again.") from None
        identity = note.tokenizer if note is not None else ""
    if os.path.lexists(copy):
        found = open_tokenizer(str(copy))
        if found.identity == identity:
            return found
    found = open_tokenizer(data.tokenizer)
    if identity and found.identity != identity:
        raise UserError(
            f"the tokenizer {data.tokenizer} is not the one that the run was trained with",
            f"Put the run's tokenizer.json back as {copy}, or choose another --run.folder.",
        )
    return found


def remove_unused(folder: Path, used: Collection[str]) -> None:
    """Remove token files inside the run's folder whose fingerprint is not in `used`. No error where that fails."""
    try:
        places = [entry.path for entry in os.scandir(folder / "data") if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for place in places:
        try:
            found = read_description(Path(place))
        except Damaged:
            continue
        if found.fingerprint not in used:
            shutil.rmtree(place, ignore_errors=True)


def _candidates(data: Data, folder: Path, fingerprint: str) -> list[Path]:
    found: list[Path] = []
    try:
        note = read_note(folder)
    except Damaged:
        note = None
    if note is not None and fingerprint in note.folders:
        found.append(folder / note.folders[fingerprint])
    inside = folder / "data"
    found.append(inside)  # where an earlier version had them
    try:
        found += sorted(path for path in inside.iterdir() if path.is_dir())
        if data.cache and (folder / _POINTER).is_file():
            found.append(Path((folder / _POINTER).read_text(encoding="utf-8")))
    except OSError:
        pass
    return found


def _within(folder: Path, place: Path) -> str:
    """Return `place` relative to the run's folder, if it lies inside: a run may be moved."""
    run, here = folder.absolute(), place.absolute()
    return str(here.relative_to(run) if here.is_relative_to(run) else here)


def _keep_tokenizer(folder: Path, tokenizer: JsonTokenizer) -> None:
    copy = folder / TOKENIZER
    if os.path.lexists(copy):
        try:
            if open_tokenizer(str(copy)).identity == tokenizer.identity:
                return
        except UserError:
            pass
    partial = copy.with_name(f".{TOKENIZER}.{os.getpid()}")
    partial.write_bytes(tokenizer.content)
    partial.replace(copy)


def _digest(note: Note) -> str:
    content: dict[str, Any] = note._asdict()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()
