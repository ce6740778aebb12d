"""Sources to token files: streaming, in constant memory, prepared once and reused while nothing changed. No torch."""

import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer.data import reading
from trainer.data.progress import Progress
from trainer.data.reading import Piece
from trainer.data.sources import Sources, resolve
from trainer.data.token_files import Split, TokenWriter
from trainer.data.tokenize import JsonTokenizer, Tokenizer
from trainer.errors import UserError
from trainer.schema import Data

VERSION = 1
DESCRIPTION = "data.json"
_POINTER = "data.location"
_BATCH_CHARACTERS = 1 << 20
_BATCH_PIECES = 256

Say = Callable[[str], None]


class Prepared(NamedTuple):
    """A folder of token files, as its data.json describes it.

    `settings` and `sources` are digests of what was asked for and of the files read (paths, sizes, times);
    `fingerprint` is a digest of the tokens themselves.
    """

    folder: str
    settings: str
    sources: str
    fingerprint: str
    tokenizer: str
    train: Split
    validation: Split
    zlib_bits_per_byte: float | None


def say(text: str) -> None:
    """A line for the user, on stderr."""
    print(text, file=sys.stderr, flush=True)


def prepare(
    data: Data, folder: str, tokenizer: Tokenizer, *, keep: str = "", zlib: bool = False, say: Say = say
) -> Prepared:
    """The token files of `data`: the ones there are if nothing changed, else made anew.

    They lie in `<folder>/data`, or in a folder of their own under `data.cache`. `keep` is the fingerprint a run was
    trained on: where the files there have it and only the sources changed, they stay as they are. With `zlib` the
    description says what zlib at level 9 needs for the validation text.

    Raises UserError: status 2 for what is wrong with the sources, 1 where the files cannot be written.
    """
    settings = _settings_digest(data, tokenizer)
    here = os.path.join(folder, "data")
    if keep and not data.cache:
        there = read_description(here)
        if there is not None and (there.settings, there.fingerprint) == (settings, keep):
            return _kept(data, there, zlib, say)
    sources = resolve(data)
    _check_kind(sources, tokenizer)
    digest = _sources_digest(sources)
    if data.cache:
        cache = os.path.abspath(os.path.expanduser(data.cache))
        here = os.path.join(cache, hashlib.sha256((settings + digest).encode()).hexdigest()[:24])
    found = read_description(here)
    if found is None or (found.settings, found.sources) != (settings, digest):
        if found is not None:
            what = "the sources" if found.settings == settings else "the data settings"
            say(f"data: {what} changed since {here} was prepared; preparing it again")
        found = _writing(here, lambda: _build(data, sources, tokenizer, here, settings, digest))
    if zlib:
        found = _with_zlib(data, sources, found)
    if data.cache:
        _writing(folder, lambda: _point(folder, here))
    return found


def prepared(data: Data, folder: str) -> Prepared:
    """The token files that another process has prepared, without a look at the sources.

    Raises UserError (status 1) where there are none.
    """
    here = os.path.join(folder, "data")
    if data.cache:
        try:
            with open(os.path.join(folder, _POINTER), encoding="utf-8") as file:
                here = file.read()
        except OSError:
            here = os.path.abspath(os.path.expanduser(data.cache))
    found = read_description(here)
    if found is None:
        raise UserError(
            f"no prepared data in {here}",
            "prepare it first; with several nodes run.folder and data.cache must lie on storage that all of them see",
        )
    return found


def read_description(folder: str) -> Prepared | None:
    """What data.json in `folder` says; None if there is none, or the files are not as it says."""
    try:
        with open(os.path.join(folder, DESCRIPTION), encoding="utf-8") as file:
            stored = json.load(file)
        if stored.pop("version") != VERSION:
            return None
        stored["train"] = Split(**stored["train"])
        stored["validation"] = Split(**stored["validation"])
        found = Prepared(folder=folder, **stored)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    whole = found.train.fits(folder, "train") and found.validation.fits(folder, "validation")
    return found if whole else None


def _kept(data: Data, there: Prepared, zlib: bool, say: Say) -> Prepared:
    """The files of a run that goes on, though its sources may have changed or gone."""
    try:
        sources = resolve(data)
        changed = _sources_digest(sources) != there.sources
    except UserError as error:
        say(f"data: {error.what}; the run goes on with the tokens prepared at its start")
        return there
    if changed:
        say("data: the sources changed; the run goes on with the tokens prepared at its start")
        return there
    return _with_zlib(data, sources, there) if zlib else there


def _check_kind(sources: Sources, tokenizer: Tokenizer) -> None:
    if sources.kind == "text" and tokenizer.identity == "ids":
        raise UserError(
            'data.tokenizer = "ids" reads lists of ids, which text files do not hold',
            "put the ids into a JSON-lines file (data.jsonl, data.field)",
            2,
        )


def _build(
    data: Data, sources: Sources, tokenizer: Tokenizer, here: str, settings: str, digest: str
) -> Prepared:
    parent = os.path.dirname(here)
    os.makedirs(parent, exist_ok=True)
    _sweep(here)
    partial = f"{here}.partial-{socket.gethostname()}-{os.getpid()}"
    os.mkdir(partial)
    try:
        train, validation = _write_splits(data, sources, tokenizer, partial)
        fingerprint = hashlib.sha256(f"{train.digest} {validation.digest}".encode()).hexdigest()[:32]
        found = Prepared(here, settings, digest, fingerprint, tokenizer.identity, train, validation, None)
        _write_description(partial, found)
        _publish(partial, here)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return found


def _write_splits(data: Data, sources: Sources, tokenizer: Tokenizer, folder: str) -> tuple[Split, Split]:
    progress = Progress("preparing data", sum(os.path.getsize(path) for path in sources.files))
    train, validation = TokenWriter(folder, "train"), TokenWriter(folder, "validation")
    try:
        number = 0
        for ids, piece in _encoded(_pieces(data, sources.kind, sources.train, tokenizer), tokenizer):
            writer = validation if held_out(number, data) else train
            writer.append(ids, piece.text, last=piece.last, end=tokenizer.end)
            number += piece.last
            progress.add(piece.read)
        for ids, piece in _encoded(_pieces(data, sources.kind, sources.validation, tokenizer), tokenizer):
            validation.append(ids, piece.text, last=piece.last, end=tokenizer.end)
            progress.add(piece.read)
        return train.close(), validation.close()
    finally:
        progress.close()
        for writer in (train, validation):
            writer.abandon()


def held_out(number: int, data: Data) -> bool:
    """Whether document `number` (from 0, in order) is validation: the last of every `holdout`, where no validation
    files are named."""
    return not data.validation and data.holdout > 0 and number % data.holdout == data.holdout - 1


def _pieces(data: Data, kind: str, files: list[str], tokenizer: Tokenizer | None) -> Iterator[Piece]:
    """Documents of `files`, as the tokenizer reads them; without one as bytes."""
    decode = isinstance(tokenizer, JsonTokenizer)
    if kind == "text":
        return reading.read_text(files, decode=decode)
    ids = tokenizer is not None and tokenizer.identity == "ids"
    return reading.read_jsonl(files, data.field, ids=ids, decode=decode)


def _encoded(pieces: Iterator[Piece], tokenizer: Tokenizer) -> Iterator[tuple[NDArray[Any], Piece]]:
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


def _with_zlib(data: Data, sources: Sources, found: Prepared) -> Prepared:
    """Adds the figure to the description; where that cannot be written it is only returned."""
    if found.zlib_bits_per_byte is not None or not found.validation.text_bytes:
        return found
    found = found._replace(zlib_bits_per_byte=reading.zlib_bits_per_byte(_held_out_text(data, sources)))
    try:
        _write_description(found.folder, found)
    except OSError:
        return found
    return found


def _held_out_text(data: Data, sources: Sources) -> Iterator[bytes]:
    if sources.validation:
        for piece in _pieces(data, sources.kind, sources.validation, None):
            assert isinstance(piece.content, bytes)
            yield piece.content
        return
    files = sources.train
    if sources.kind == "text":  # a file is a document, so the others need not be read
        files = [path for number, path in enumerate(files) if held_out(number, data)]
    number = 0
    for piece in _pieces(data, sources.kind, files, None):
        if sources.kind == "text" or held_out(number, data):
            assert isinstance(piece.content, bytes)
            yield piece.content
        number += piece.last


def _settings_digest(data: Data, tokenizer: Tokenizer) -> str:
    asked = (VERSION, data.text, data.jsonl, data.field, data.validation, data.holdout, tokenizer.identity)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _sources_digest(sources: Sources) -> str:
    digest = hashlib.sha256()
    for part in (sources.train, sources.validation):
        digest.update(b"\0\0")
        for path in part:
            try:
                stat = os.stat(path)
            except OSError as error:
                raise UserError(f"{path} cannot be read: {error.strerror}", "check that it exists", 2) from error
            digest.update(f"{path}\0{stat.st_size} {stat.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _write_description(folder: str, found: Prepared) -> None:
    stored: dict[str, Any] = {"version": VERSION, **found._asdict()}
    del stored["folder"]
    stored["train"], stored["validation"] = found.train._asdict(), found.validation._asdict()
    _replace(os.path.join(folder, DESCRIPTION), json.dumps(stored, indent=1) + "\n")


def _point(folder: str, here: str) -> None:
    path = os.path.join(folder, _POINTER)
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(path) or open(path, encoding="utf-8").read() != here:  # noqa: SIM115
        _replace(path, here)


def _replace(path: str, content: str) -> None:
    partial = f"{path}.partial-{socket.gethostname()}-{os.getpid()}"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def _publish(partial: str, here: str) -> None:
    """Moves the finished folder to its name; what had the name is removed after."""
    old = f"{partial}-old"
    try:
        if os.path.lexists(here):
            os.rename(here, old)
        os.rename(partial, here)
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _sweep(here: str) -> None:
    """Removes what preparations that were killed on this machine have left."""
    prefix = f"{os.path.basename(here)}.partial-{socket.gethostname()}-"
    parent = os.path.dirname(here)
    for name in os.listdir(parent):
        if name.startswith(prefix):
            pid = name.removeprefix(prefix).removesuffix("-old")
            if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                shutil.rmtree(os.path.join(parent, name), ignore_errors=True)


def _writing(where: str, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except OSError as error:
        raise UserError(
            f"prepared data cannot be written to {where}: {error.strerror or error}",
            "free space or rights there, or set data.cache to another folder",
        ) from error
