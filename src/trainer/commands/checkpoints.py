"""`trainer checkpoints ls|verify`: what checkpoints there are and whether they are whole. No torch."""

import sys
import time
from pathlib import Path

from trainer.checkpoint.store import FOLDER, Damaged, Entry, Store, verify
from trainer.errors import UserError
from trainer.metrics.summary import format_bytes, format_duration

HELP = """usage: trainer checkpoints ls RUN_FOLDER
       trainer checkpoints verify RUN_FOLDER|CHECKPOINT

ls       the checkpoints of a run, newest first: step, size, age, and whether every file is there with its right size
verify   reads everything and compares it with the SHA-256 it was saved with; names the file that is damaged

examples:
  trainer checkpoints ls runs/default
  trainer checkpoints verify runs/default/checkpoints/step-00000300

exit status: 0 all is well; 1 verify found damage; 2 wrong usage"""


def run(arguments: list[str]) -> int:
    """Runs `ls` or `verify`; prints to standard output, damage also to standard error."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    if not arguments or arguments[0] not in ("ls", "verify"):
        given = f"no such action: {arguments[0]}" if arguments else "an action is missing"
        raise UserError(given, "Run `trainer checkpoints ls RUN_FOLDER` or `trainer checkpoints verify RUN_FOLDER`.", 2)
    action, *places = arguments
    for place in places:
        if place.startswith("-"):
            raise UserError(f"checkpoints {action} has no option {place}", "See `trainer checkpoints --help`.", 2)
    if len(places) != 1:
        raise UserError(
            f"checkpoints {action} takes one folder, not {len(places)}", "See `trainer checkpoints --help`.", 2
        )
    folder = Path(places[0])
    return _list(folder) if action == "ls" else _verify(folder)


def _entries(run_folder: Path) -> list[Entry]:
    folder = run_folder.parent if run_folder.name == FOLDER else run_folder
    entries = Store(folder, 1).entries()
    if not entries:
        missing = "there is no folder" if not folder.is_dir() else "there are no checkpoints in"
        raise UserError(
            f"{missing} {folder}", "Give the run folder that `trainer train` printed, such as runs/default.", 2
        )
    return entries


def _list(run_folder: Path) -> int:
    now = time.time()
    rows = [("step", "size", "age", "state")]
    for entry in _entries(run_folder):
        manifest, problem = entry.manifest, entry.problem
        size = format_bytes(manifest.size) if manifest else "?"
        age = format_duration(now - manifest.saved) if manifest else "?"
        state = f"DAMAGED: {problem.file} {problem.why}" if problem else "complete"
        rows.append((str(entry.step), size, age, state))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print("  ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), row[3]]))
    return 0


def _verify(place: Path) -> int:
    damaged = 0
    for path in _checkpoints(place):
        try:
            manifest = verify(path)
        except Damaged as problem:
            damaged += 1
            print(f"{path}: DAMAGED: {problem.file} {problem.why}", file=sys.stderr)
        else:
            print(f"{path}: whole ({len(manifest.files)} files, {format_bytes(manifest.size)})")
    return 1 if damaged else 0


def _checkpoints(place: Path) -> list[Path]:
    if place.is_dir() and (place.name.startswith("step-") or (place / "manifest.json").exists()):
        return [place]
    return [entry.path for entry in _entries(place)]
