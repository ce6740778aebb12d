"""Where checkpoints lie: `<run folder>/checkpoints/step-00000042`, each there whole or not at all.

    every rank          rank 0
    ----------          ------
                        temporary = store.begin(step)          its name is then told to all ranks
    write own files     write own files                        into `temporary` (checkpoint.state does)
    barrier             barrier, and agree that all went well  or rank 0: store.abort(temporary)
                        store.commit(temporary, step, meta)

A folder whose name starts with a dot is work in progress: `.step-N.<host>-<pid>-<random>` is being written,
`.step-N.old` is the former checkpoint of that step while it is replaced. A killed writer's are swept by the next save.
"""

import contextlib
import os
import re
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainer.checkpoint.durable import make_folder, refused, remove, sync_folder, writing_to
from trainer.checkpoint.files import Damaged, regular_files
from trainer.checkpoint.manifest import (
    MANIFEST,
    Manifest,
    check_names,
    digest_and_sync,
    read_manifest,
    verify,
    write_manifest,
)
from trainer.errors import UserError

__all__ = ["FOLDER", "Damaged", "Entry", "Manifest", "Store", "explicit", "read_manifest", "verify"]

FOLDER = "checkpoints"
_FINAL = re.compile(r"step-(\d{8,})")
_ASIDE = re.compile(r"\.step-(\d{8,})\.old")
_TEMPORARY = re.compile(r"\.step-(\d{8,})\.(.+)-(\d+)-[0-9a-f]{8}")
# A writer on another host is taken for dead when nothing in its folder has changed for so long.
_IDLE_SECONDS = 1800.0

Sentences = list[str]


class Entry(NamedTuple):
    """A committed checkpoint after a quick look (names and sizes); `manifest` is None when it cannot be read."""

    path: Path
    step: int
    manifest: Manifest | None
    problem: Damaged | None


class Store:
    """The checkpoints of one run folder, of which the newest `keep` whole ones are kept.

    Used by rank 0; the other ranks only need the paths it hands out.
    """

    def __init__(self, run_folder: Path, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        self.folder = Path(run_folder) / FOLDER
        self.keep = keep
        self._host = re.sub(r"[^A-Za-z0-9_]", "_", os.uname().nodename) or "host"
        self._open: set[str] = set()

    def begin(self, step: int) -> Path:
        """A fresh temporary folder for the checkpoint of `step`. UserError when it cannot be made."""
        with writing_to(self.folder):
            make_folder(self.folder)
            self._sweep()
            temporary = self.folder / self._hidden(step)
            temporary.mkdir()
        self._open.add(temporary.name)
        return temporary

    def commit(self, temporary: Path, step: int, meta: dict[str, object], files: Sequence[str] = ()) -> Path:
        """Makes `temporary` the checkpoint of `step`, durably, then removes checkpoints beyond `keep`.

        Call it on rank 0 when every rank has written. `meta` is what JSON can hold. `files` are names that must be
        there: a network file system may show another node's new file late, so they are waited for. UserError when it
        cannot be saved: the temporary folder is removed and older checkpoints are as they were.
        """
        final = self.folder / f"step-{step:08d}"
        try:
            with writing_to(self.folder):
                _wait_for(temporary, files)
                hashes = {name: digest_and_sync(temporary, name) for name in list(regular_files(temporary))}
                write_manifest(temporary, Manifest(step, self._next_sequence(), time.time(), hashes, meta))
                for folder in sorted((path for path in temporary.rglob("*") if path.is_dir()), reverse=True):
                    sync_folder(folder)
                sync_folder(temporary)
                self._put_in_place(temporary, final)
        except Damaged as problem:
            self.abort(temporary)
            raise UserError(
                f"cannot save a checkpoint in {self.folder}: {problem.file} {problem.why}",
                "Let no other program write into that folder, or choose another folder with --run.folder.",
            ) from problem
        except BaseException:
            self.abort(temporary)
            raise
        self._open.discard(temporary.name)
        try:
            remove(self._aside(step))
            self._prune()
        except OSError as error:  # the new one is safe: no reason to end a run
            warnings.warn(f"old checkpoints stay in {self.folder}: {error}", RuntimeWarning, stacklevel=2)
        return final

    def abort(self, temporary: Path) -> None:
        """Forgets a checkpoint that was begun; no error when it is gone already."""
        remove(temporary)
        self._open.discard(temporary.name)

    def entries(self) -> list[Entry]:
        """The committed checkpoints, newest first, looked at but not read; those with unreadable manifests come first.

        Newest means committed last: after a resume from an older step it may have a lower step than others.
        """
        return sorted((_look(path, step) for step, path in self._committed().items()), key=_age_key)

    def list(self) -> list[Path]:
        """The folders of the committed checkpoints, in the order of their steps."""
        return [path for _, path in sorted(self._committed().items())]

    def explicit(self, path: Path | str) -> Path:
        """The function of that name, for callers that have a store."""
        return explicit(path)

    def meta(self, path: Path) -> dict[str, Any]:
        """The `meta` that the checkpoint `path` was committed with. `Damaged` when its manifest is."""
        return read_manifest(path).meta

    def newest(self) -> tuple[Path | None, Sentences]:
        """The newest checkpoint of which every byte is right, and a sentence (path, file, why) on each passed over."""
        passed_over: list[tuple[Entry, str]] = []
        for entry in self.entries():
            problem = entry.problem
            if problem is None:
                try:
                    verify(entry.path)
                except Damaged as damaged:
                    problem = damaged
            if problem is None:
                return entry.path, [why for old, why in passed_over if old.manifest or old.step > entry.step]
            passed_over.append((entry, f"{entry.path}: {problem.file} {problem.why}"))
        return None, [why for _, why in passed_over]

    def _committed(self) -> dict[int, Path]:
        """Path of the checkpoint of each step. A former one stands in while its replacement is not in place."""
        final: dict[int, Path] = {}
        aside: dict[int, Path] = {}
        for name in _names(self.folder):
            if match := _FINAL.fullmatch(name):
                final[int(match[1])] = self.folder / name
            elif match := _ASIDE.fullmatch(name):
                aside[int(match[1])] = self.folder / name
        return aside | final

    def _hidden(self, step: int) -> str:
        # os.urandom: no random state that a run must keep is touched
        return f".step-{step:08d}.{self._host}-{os.getpid()}-{os.urandom(4).hex()}"

    def _aside(self, step: int) -> Path:
        return self.folder / f".step-{step:08d}.old"

    def _put_in_place(self, temporary: Path, final: Path) -> None:
        """Renames; a checkpoint of the same step is moved aside, where it is still found, until the new one is in."""
        if final.exists():
            aside = self._aside(int(final.name.removeprefix("step-")))
            remove(aside)
            final.rename(aside)
            try:
                temporary.rename(final)
            except OSError:
                aside.rename(final)
                raise
        else:
            temporary.rename(final)
        sync_folder(self.folder)

    def _next_sequence(self) -> int:
        return 1 + max((e.manifest.sequence for e in self.entries() if e.manifest), default=0)

    def _prune(self) -> None:
        entries = self.entries()
        whole = [entry for entry in entries if entry.problem is None]
        kept, doomed = whole[: self.keep], whole[self.keep :]
        if len(kept) == self.keep:
            lowest = min(entry.step for entry in kept)
            doomed += [entry for entry in entries if entry.problem and entry.step < lowest]
        for entry in reversed(doomed):  # oldest first
            # renamed first: a kill in the middle leaves no half checkpoint behind
            trash = self.folder / self._hidden(entry.step)
            entry.path.rename(trash)
            remove(trash)

    def _sweep(self) -> None:
        """Removes what killed writers left, and puts back a checkpoint whose replacement never came."""
        for name in _names(self.folder):
            path = self.folder / name
            if match := _ASIDE.fullmatch(name):
                final = self.folder / f"step-{match[1]}"
                if final.exists():
                    remove(path)
                else:
                    path.rename(final)
            elif (match := _TEMPORARY.fullmatch(name)) and name not in self._open:
                here = match[2] == self._host
                # in a container the restarted writer has the number of the dead one: what is not open here is stale
                if (here and (int(match[3]) == os.getpid() or not _alive(int(match[3])))) or _idle(path):
                    remove(path)


def explicit(path: Path | str) -> Path:
    """The checkpoint that a user named, verified. UserError when it is none, or damaged: then with the file's name."""
    path = Path(path)
    if not path.is_dir():
        raise UserError(
            f"there is no checkpoint {path}",
            "Give a folder such as RUN/checkpoints/step-00000042; `trainer checkpoints ls RUN` lists them.",
            2,
        )
    if not (path / MANIFEST).exists() and not _FINAL.fullmatch(path.name):
        inside = path if path.name == FOLDER else path / FOLDER
        found = sorted(name for name in _names(inside) if _FINAL.fullmatch(name))
        fix = f"Give {inside / found[-1]}." if found else "Give a folder with a name such as step-00000042."
        raise UserError(f"{path} is not a checkpoint", fix, 2)
    try:
        verify(path)
    except Damaged as damaged:
        raise UserError(
            f"the checkpoint {path} is damaged: {damaged.file} {damaged.why}",
            "Give another checkpoint, or set run.resume to auto, which uses the newest whole one.",
        ) from damaged
    return path


def _look(path: Path, step: int) -> Entry:
    try:
        return Entry(path, step, check_names(path), None)
    except Damaged as damaged:
        try:
            return Entry(path, step, read_manifest(path), damaged)
        except Damaged:
            return Entry(path, step, None, damaged)


def _age_key(entry: Entry) -> tuple[bool, int, int]:
    sequence = entry.manifest.sequence if entry.manifest else 0
    return entry.manifest is not None, -sequence, -entry.step


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is wanted
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(
            f"cannot read {folder}: {error.strerror}", "Make that folder readable, or choose another."
        ) from error


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _idle(folder: Path) -> bool:
    """Nothing in it has changed for long, by the file system's own clock."""
    probe = folder.parent / f".clock-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        probe.touch()
        now = probe.stat().st_mtime
        changed = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:
        return False  # it changes while we look, or the disk is full
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return now - changed > _IDLE_SECONDS


def _wait_for(folder: Path, files: Sequence[str], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    for name in files:
        while not (folder / name).exists():
            if time.monotonic() > until:
                raise refused(FileNotFoundError(None, f"{name} of another rank did not appear"), folder)
            time.sleep(0.05)
