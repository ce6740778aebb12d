"""Which files a run reads: `data.text`, `data.jsonl` and `data.validation` as paths, in order. No torch, no numpy."""

import glob
import os
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trainer.errors import UserError
from trainer.schema import Data

STANDARD_LIBRARY = "python:stdlib"
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "__pycache__"})


# what a run writes into its folder: top-level names, and files of prepared tokens in its folder `data`
_OF_RUNS = frozenset(
    {
        "checkpoints",
        "start",
        "tensorboard",
        "metrics.jsonl",
        "resolved.toml",
        "data.location",
        "images.json",
        "prepared.json",
        "tokenizer.json",
        "finished.json",
        "verified.json",
    }
)
_PREPARED = frozenset(
    {
        "data.json",
        "train.bin",
        "train.documents",
        "validation.bin",
        "validation.documents",
        "zlib.json",
        "verified.json",
    }
)


class Sources(NamedTuple):
    """Resolved files. `kind` is "text" (a file is a document) or "jsonl" (a line is a document).

    `validation` is empty when validation documents are split off by `holdout` (or there are none).
    """

    kind: str
    train: list[str]
    validation: list[str]

    @property
    def files(self) -> list[str]:
        """Every file, training files first."""
        return self.train + self.validation


def resolve_files(data: Data, run_folder: Path | None = None) -> Sources:
    """Find the files of `data`. What a run itself writes into `run_folder` is found by no glob and in no folder; of a
    run folder that the corpus lies in (`--run.folder .`) nothing else is left out.

    Raises UserError (status 2) when no source or more than one is given, or an entry leads to no readable file.
    """
    given = [name for name in ("text", "jsonl", "dataset") if getattr(data, name)]
    if not given:
        raise UserError(
            "no training data is given",
            'Set data.text (for example ["corpus/**/*.txt"]), data.jsonl or data.dataset.',
            2,
        )
    if len(given) > 1:
        raise UserError(f"data.{given[0]} and data.{given[1]} are both set", "Set only one of them.", 2)
    kind = given[0]
    assert kind != "dataset", "a dataset of the user's own has no files to resolve"
    pattern = "*.jsonl" if kind == "jsonl" else "*"
    own = f"{os.path.abspath(run_folder)}{os.sep}" if run_folder else ""  # noqa: PTH100 - without `.` at its end
    train = find_files(getattr(data, kind), f"data.{kind}", pattern, own)
    validation = find_files(data.validation, "data.validation", pattern, own)
    return Sources(kind, train, validation)


def find_files(entries: Iterable[str], key: str, pattern: str = "*", leave_out: str = "") -> list[str]:
    """Absolute paths of files, globs and folders, in the order given; a file found twice counts once.

    Inside a glob or a folder (searched recursively for `pattern`) files are sorted by path; names that begin with a
    dot are left out, and what a run writes into the folder `leave_out`, which ends with a separator. `key` is the
    setting named in errors.
    """
    found: dict[str, None] = {}
    for entry in entries:
        files = standard_library_files() if entry == STANDARD_LIBRARY else _files_of(entry, key, pattern, leave_out)
        found.update(dict.fromkeys(files))
    for path in found:
        if not os.access(path, os.R_OK):
            raise UserError(f"{key}: {path} cannot be read", "Check its permissions.", 2)
    return list(found)


def standard_library_files() -> list[str]:
    """Every *.py of the running interpreter's library, sorted by relative path.

    `site-packages` and folders named `test` are left out.
    """
    root = sysconfig.get_path("stdlib")
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT]
        found += [f"{folder}{os.sep}{name}" for name in names if name.endswith(".py")]
    if not found:
        raise UserError(f"{STANDARD_LIBRARY}: no source files under {root}", "Set data.text to files of your own.", 2)
    return sorted(found, key=_posix)


def _files_of(entry: str, key: str, pattern: str, leave_out: str) -> list[str]:
    path = Path(os.path.abspath(Path(entry).expanduser()))  # noqa: PTH100 - without `..`
    if path.is_file():
        return [str(path)]
    if path.is_dir():
        files = _matching(f"{glob.escape(str(path))}/**/{pattern}", leave_out)
        if not files:
            raise UserError(f"{key}: no {pattern} files in the folder {path}", "Give another folder, or files.", 2)
        return files
    if glob.has_magic(entry):
        files = _matching(str(path), leave_out)
        if not files:
            raise UserError(
                f"{key}: no file matches {entry!r} (looked for {path})",
                "Correct the pattern; `**` matches any number of folders, and relative paths start at the "
                "current directory.",
                2,
            )
        return files
    what = "exists but is no regular file or folder" if path.exists() else "does not exist"
    raise UserError(
        f"{key}: {entry!r} {what} (looked for {path})",
        "Correct the path; relative paths start at the current directory.",
        2,
    )


def _matching(pattern: str, leave_out: str) -> list[str]:
    # unlike Path.glob, the module takes absolute patterns and leaves hidden names out
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207
    inside = leave_out and f"{_base(pattern)}{os.sep}".startswith(leave_out)
    wanted = (file for file in found if Path(file).is_file() and not _of_run(file, leave_out, bool(inside)))
    return sorted(wanted, key=_posix)


def _base(pattern: str) -> str:
    """The folder that all matches lie in."""
    parts = _posix(pattern).split("/")
    fixed = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return "/".join(parts[:fixed])


def _of_run(file: str, folder: str, inside: bool) -> bool:
    """Whether a run writes this file into its `folder`; `inside`: that is where the user's own are looked for too."""
    if not folder or not file.startswith(folder):
        return False
    top, *deeper = _posix(file[len(folder) :]).split("/")
    return not inside or top in _OF_RUNS or (top == "data" and bool(deeper) and deeper[-1] in _PREPARED)


def _posix(path: str) -> str:
    return path.replace(os.sep, "/")
