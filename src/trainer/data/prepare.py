"""Token files prepared once, and reused while nothing changed. No torch, and no numpy where there is nothing to do."""

import glob
import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trainer.data.description import (
    VERSION,
    Prepared,
    located,
    partial_name,
    point,
    read_description,
    write_description,
)
from trainer.data.reading import held_out_text, zlib_bits_per_byte
from trainer.data.sources import Sources, resolve_files
from trainer.data.tokenize import Tokenizer
from trainer.errors import UserError
from trainer.schema import Data

Say = Callable[[str], None]
T = TypeVar("T")


def say(text: str) -> None:
    """A line for the user, on stderr."""
    print(text, file=sys.stderr, flush=True)


def prepare(
    data: Data, folder: Path, tokenizer: Tokenizer, *, keep: str = "", zlib: bool = False, say: Say = say
) -> Prepared:
    """The token files of `data`: the ones there are if nothing changed, else made anew.

    They lie in `<folder>/data`, or in a folder of their own under `data.cache`. `keep` is the fingerprint a run was
    trained on: where the files there have it and only the sources changed, they stay as they are. With `zlib` the
    description says what zlib at level 9 needs for the validation text.

    Raises UserError: status 2 for what is wrong with the sources, 1 where the files cannot be written.
    """
    settings = _settings_digest(data, tokenizer)
    here = folder / "data"
    if keep:
        there = read_description(located(data, folder))
        if there is not None and (there.settings, there.fingerprint) == (settings, keep):
            return _kept(data, folder, there, zlib, say)
    sources = resolve_files(data, folder)
    _check_kind(sources, tokenizer)
    digest = _sources_digest(sources)
    if data.cache:
        here = Path(data.cache).expanduser().absolute() / hashlib.sha256((settings + digest).encode()).hexdigest()[:24]
    found = read_description(here)
    if found is None or (found.settings, found.sources) != (settings, digest):
        if found is not None:
            what = "the sources" if found.settings == settings else "the data settings"
            say(f"data: {what} changed since {here} was prepared; preparing it again")
        found = _writing(here, lambda: _build(data, sources, tokenizer, here, settings, digest))
    if zlib:
        found = _with_zlib(data, sources, found)
    if data.cache:
        _writing(folder, lambda: point(folder, here))
    return found


def prepared(data: Data, folder: Path) -> Prepared:
    """The token files that another process has prepared, without a look at the sources.

    Raises UserError (status 1) where there are none.
    """
    here = located(data, folder)
    found = read_description(here)
    if found is None:
        raise UserError(
            f"no prepared data in {here}",
            "prepare it first; with several nodes run.folder and data.cache must lie on storage that all of them see",
        )
    return found


def has_prepared(data: Data, folder: Path, tokenizer: Tokenizer) -> bool:
    """Whether whole token files made with these settings are there."""
    found = read_description(located(data, folder))
    return found is not None and found.settings == _settings_digest(data, tokenizer)


def _kept(data: Data, folder: Path, there: Prepared, zlib: bool, say: Say) -> Prepared:
    """The files of a run that goes on, though its sources may have changed or gone."""
    try:
        sources = resolve_files(data, folder)
        changed = _sources_digest(sources) != there.sources
    except UserError as error:
        say(f"data: {error.what}; the run goes on with the tokens prepared at its start")
        return there
    if changed:
        say("data: the sources changed; the run goes on with the tokens prepared at its start")
        return there
    return _with_zlib(data, sources, there) if zlib else there


def _with_zlib(data: Data, sources: Sources, found: Prepared) -> Prepared:
    """Adds the figure to the description; where that cannot be written it is only returned."""
    if found.zlib_bits_per_byte is not None or not found.validation.text_bytes:
        return found
    found = found._replace(zlib_bits_per_byte=zlib_bits_per_byte(held_out_text(data, sources)))
    try:
        write_description(found.folder, found)
    except OSError:
        return found
    return found


def _check_kind(sources: Sources, tokenizer: Tokenizer) -> None:
    if sources.kind == "text" and tokenizer.identity == "ids":
        raise UserError(
            'data.tokenizer = "ids" reads lists of ids, which text files do not hold',
            "put the ids into a JSON-lines file (data.jsonl, data.field)",
            2,
        )


def _build(data: Data, sources: Sources, tokenizer: Tokenizer, here: Path, settings: str, digest: str) -> Prepared:
    here.parent.mkdir(parents=True, exist_ok=True)
    _sweep(here)
    partial = partial_name(here)
    partial.mkdir()
    from trainer.data.encode import write_splits

    try:
        train, validation = write_splits(data, sources, tokenizer, partial)
        fingerprint = hashlib.sha256(f"{train.digest} {validation.digest}".encode()).hexdigest()[:32]
        found = Prepared(here, settings, digest, fingerprint, tokenizer.identity, train, validation, None)
        write_description(partial, found)
        _publish(partial, found)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return found


def _settings_digest(data: Data, tokenizer: Tokenizer) -> str:
    asked = (VERSION, data.text, data.jsonl, data.field, data.validation, data.holdout, tokenizer.identity)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _sources_digest(sources: Sources) -> str:
    digest = hashlib.sha256()
    for part in (sources.train, sources.validation):
        digest.update(b"\0\0")
        for path in part:
            try:
                stat = os.stat(path)  # noqa: PTH116  # with Path twice the time, felt with many files
            except OSError as error:
                raise UserError(f"{path} cannot be read: {error.strerror}", "check that it exists", 2) from error
            digest.update(f"{path}\0{stat.st_size} {stat.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _publish(partial: Path, found: Prepared) -> None:
    """Moves the finished folder to its name; what had the name is removed after."""
    here = found.folder
    there = read_description(here)
    if there is not None and (there.sources, there.fingerprint) == (found.sources, found.fingerprint):
        return  # another process has prepared the same
    old = partial.with_name(f"{partial.name}-old")
    if here.exists():
        here.rename(old)
    try:
        partial.rename(here)
    except BaseException:
        if old.exists():
            old.rename(here)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _sweep(here: Path) -> None:
    """Removes what preparations that were killed on this machine have left."""
    prefix = f"{here.name}.partial-{socket.gethostname()}-"
    for path in here.parent.glob(f"{glob.escape(prefix)}*"):
        pid = path.name.removeprefix(prefix).removesuffix("-old")
        # our own number is left by another life: in containers it is often the same
        if pid.isdigit() and (int(pid) == os.getpid() or not _alive(int(pid))):
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _writing(where: Path, action: Callable[[], T]) -> T:
    try:
        return action()
    except OSError as error:
        raise UserError(
            f"prepared data cannot be written to {where}: {error.strerror or error}",
            "free space or rights there, or set data.cache to another folder",
        ) from error
