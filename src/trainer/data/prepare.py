"""Token files made once for each set of settings and sources, and never changed after.

They lie in a folder that is named by a digest of both, inside the run's folder or in `data.cache`. No torch, and no
numpy where there is nothing to do.
"""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainer import startup
from trainer.data.description import (
    VERSION,
    Damaged,
    Prepared,
    fingerprint_of,
    partial_name,
    paths,
    read_description,
    read_zlib,
    there,
    write_description,
    write_zlib,
)
from trainer.data.reading import held_out_text, zlib_bits_per_byte
from trainer.data.run_note import with_fingerprint
from trainer.data.sources import Sources, resolve_files
from trainer.data.tokenize import Tokenizer
from trainer.errors import UserError
from trainer.schema import Data

Say = Callable[[str], None]
_WAIT_SECONDS = 0.2


def say(text: str) -> None:
    """A line for the user, on stderr."""
    print(text, file=sys.stderr, flush=True)


def prepare(
    data: Data, folder: Path, tokenizer: Tokenizer, *, keep: str = "", zlib: bool = False, say: Say = say
) -> Prepared:
    """Return the token files of `data`, verified: those that are there, else new ones.

    `keep` is the fingerprint that the run in `folder` was trained on: where it still has these files, it goes on with
    them, whatever became of the sources. `zlib`: also find out what zlib at level 9 needs for the validation text.

    Raises UserError: status 2 for what is wrong with the sources, 1 where files are damaged or cannot be written.
    """
    kept = with_fingerprint(data, folder, keep) if keep else None
    damage: Damaged | None = None
    if kept is not None and kept.settings in (_settings_digest(data, tokenizer, version) for version in (VERSION, 1)):
        try:
            _require_right(kept, folder, data)
        except Damaged as problem:
            damage = problem  # the same can be made of the same sources
        else:
            _say_if_changed(data, folder, kept, say)
            return kept
    try:
        found = _of_sources(data, folder, tokenizer, zlib, say)
    except UserError as error:
        if damage is None:
            raise
        raise damaged(damage) from error
    if damage is not None and found.fingerprint != keep:
        raise damaged(damage)
    return found


def _of_sources(data: Data, folder: Path, tokenizer: Tokenizer, zlib: bool, say: Say) -> Prepared:
    sources = resolve_files(data, folder)
    _check_kind(sources, tokenizer)
    settings, digest = _settings_digest(data, tokenizer), _sources_digest(sources)
    root = root_of(data, folder)
    here = root / hashlib.sha256((settings + digest).encode()).hexdigest()[:24]
    found = _usable(here, folder, data, say) or _made(data, sources, tokenizer, here, folder, (settings, digest), say)
    if zlib and found.validation.text_bytes and read_zlib(found.folder) is None:
        bits = zlib_bits_per_byte(held_out_text(data, sources))
        with contextlib.suppress(OSError):  # measured again the next time
            write_zlib(found.folder, bits)
    return found


def root_of(data: Data, folder: Path) -> Path:
    """Return the folder that has a folder for each set of token files."""
    return Path(data.cache).expanduser().absolute() if data.cache else folder / "data"


def require_right(found: Prepared, folder: Path, data: Data) -> None:
    """Return when the token files are what was written, and nobody else could have written them.

    UserError for files that are damaged, or that in a shared `data.cache` another user could have changed.
    """
    try:
        _require_right(found, folder, data)
    except Damaged as problem:
        raise damaged(problem) from None


def _require_right(found: Prepared, folder: Path, data: Data) -> None:
    _require_own(found, data)
    from trainer.data.verified import require_verified

    require_verified(found, folder)


def damaged(problem: Damaged) -> UserError:
    """Return the error for token files of a run that are not what was written."""
    return UserError(
        f"the run's prepared data is not what was written: {problem}",
        "Restore that file or the original text, or start anew in another --run.folder.",
    )


def _usable(here: Path, folder: Path, data: Data, say: Say) -> Prepared | None:
    """Return the token files in `here`, if they are whole; say why not."""
    if not there(here):
        return None
    try:
        found = read_description(here)
        _require_right(found, folder, data)
    except Damaged as problem:
        say(f"data: {problem}; preparing it again")
        return None
    return found


def _made(
    data: Data, sources: Sources, tokenizer: Tokenizer, here: Path, folder: Path, digests: tuple[str, str], say: Say
) -> Prepared:
    """Return new token files in `here`; those of another process that has made the same meanwhile."""
    try:
        here.parent.mkdir(parents=True, exist_ok=True)
        try:
            with _alone(here, say) as waited:
                found = _usable(here, folder, data, say) if waited else None
                return found or _build(data, sources, tokenizer, here, folder, digests)
        except BaseException:
            with contextlib.suppress(OSError):
                here.parent.rmdir()  # unless it holds other data
            raise
    except OSError as error:
        raise UserError(
            f"prepared data cannot be written to {here}: {error.strerror or error}",
            "Free space or permissions there, or set data.cache to another folder.",
        ) from error


def _build(
    data: Data, sources: Sources, tokenizer: Tokenizer, here: Path, folder: Path, digests: tuple[str, str]
) -> Prepared:
    _sweep(here)
    partial = partial_name(here)
    partial.mkdir(mode=0o755)
    from trainer.data.digests import digest
    from trainer.data.encode import write_splits
    from trainer.data.verified import remember

    try:
        train, validation = write_splits(data, sources, tokenizer, partial)
        splits = []
        for name, split in (("train", train), ("validation", validation)):
            tokens, documents = paths(partial, name)
            splits.append(split._replace(tokens_digest=digest(tokens), documents_digest=digest(documents)))
            for path in (tokens, documents):
                path.chmod(0o444)
        train, validation = splits
        settings, read = digests
        fingerprint = fingerprint_of(train, validation)
        found = Prepared(here, settings, read, fingerprint, tokenizer.identity, train, validation)
        write_description(partial, found)
        _publish(partial, here)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    remember(found, folder)
    return found


def _publish(partial: Path, here: Path) -> None:
    """Move the finished folder to its name; what was there is damaged, and removed after."""
    old = partial.with_name(f"{partial.name}-old")
    if os.path.lexists(here):
        here.rename(old)
    try:
        partial.rename(here)
    except BaseException:
        if old.exists():
            old.rename(here)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _alone(here: Path, say: Say) -> Iterator[bool]:
    """Hold the lock of a set of token files while they are made; yield whether another process had it before.

    The lock goes with the process. Where the file system has none, two may make the same: the later one stays.
    """
    path = here.with_name(f".{here.name}.lock")
    waited = False
    while True:
        with open(path, "a") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                if not waited:
                    say(f"data: another process is preparing {here}; waiting for it")
                waited = True
                time.sleep(_WAIT_SECONDS)
                continue
            except OSError:
                pass
            if not os.path.lexists(path) or os.lstat(path).st_ino != os.fstat(file.fileno()).st_ino:
                continue  # the one before has removed it
            try:
                yield waited
            finally:
                path.unlink(missing_ok=True)
            return


def _require_own(found: Prepared, data: Data) -> None:
    """Token files in a shared cache must belong to this user or root, and nobody else may write them."""
    if not data.cache:
        return
    for path in (found.folder, *(path for name, _ in found.splits() for path in paths(found.folder, name))):
        problem = startup.untrusted(str(path))
        if problem is not None:
            why, fix = problem
            raise UserError(
                f"the prepared data {found.folder} is not used: {why}",
                f"Run `{fix}`, or set data.cache to a folder of your own."
                if fix
                else "Set data.cache to a folder of your own.",
            )


def _say_if_changed(data: Data, folder: Path, kept: Prepared, say: Say) -> None:
    """Tell of sources that are not what the run was started with."""
    on = "the run goes on with the tokens prepared at its start"
    try:
        if _sources_digest(resolve_files(data, folder)) != kept.sources:
            say(f"data: the sources changed; {on}")
    except UserError as error:
        say(f"data: {error.what}; {on}")


def _check_kind(sources: Sources, tokenizer: Tokenizer) -> None:
    if sources.kind == "text" and tokenizer.identity == "ids":
        raise UserError(
            'data.tokenizer = "ids" reads lists of ids, which text files do not hold',
            "Put the ids into a JSON-lines file (data.jsonl, data.field).",
            2,
        )


def _settings_digest(data: Data, tokenizer: Tokenizer, version: int = VERSION) -> str:
    asked = (version, data.text, data.jsonl, data.field, data.validation, data.holdout, tokenizer.identity)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _sources_digest(sources: Sources) -> str:
    digest = hashlib.sha256()
    for part in (sources.train, sources.validation):
        digest.update(b"\0\0")
        for path in part:
            try:
                stat = os.stat(path)  # noqa: PTH116  # with Path twice the time, felt with many files
            except OSError as error:
                raise UserError(f"{path} cannot be read: {error.strerror}", "Check that it exists.", 2) from error
            digest.update(f"{path}\0{stat.st_size} {stat.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _sweep(here: Path) -> None:
    """Remove what preparations that were killed on this machine have left."""
    mark = f".partial-{socket.gethostname()}-"
    for path in here.parent.glob(f"*{glob.escape(mark)}*"):
        pid = path.name.rpartition(mark)[2].removesuffix("-old")
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
