"""`trainer env create, pack, list, use, rollback, prune`: the environments that are kept."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import FrameType

from trainer import startup
from trainer.arguments import whole
from trainer.commands.env_check import extras_of
from trainer.commands.env_progress import MEBIBYTE, Steps
from trainer.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.environment.keeper import Keeper
    from trainer_boot.environment.store import Stored

Flags = Mapping[str, str]


def run(command: str, places: list[str], flags: Flags) -> int:
    """Runs one of them. UserError, or an error of the start's with `what` and `fix`."""
    keeper = startup.keeper(flags.get("store"))
    if keeper is None:
        raise UserError("there is no lock inside: this is not the one-file trainer", "In a checkout, run `uv sync`.", 2)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        if command == "create":
            return _create(keeper, flags)
        if command == "pack":
            return _pack(keeper, places[0], flags)
        if command == "list":
            return _list(keeper, flags)
        if command == "prune":
            return _prune(keeper, flags)
        return _switch(keeper, places, flags)
    except KeyboardInterrupt:
        print("stopped; nothing was changed, and the same command goes on from here", file=sys.stderr)
        return 130


def _create(keeper: "Keeper", flags: Flags) -> int:
    steps = Steps()
    extras = extras_of(flags) or []
    stored, made = keeper.create(steps, flags.get("variant", ""), extras, flags.get("from"), "repair" in flags)
    generation = None if "no-use" in flags or not _is_own(keeper) else keeper.profile.add(stored.name).number
    if made and "no-snapshot" not in flags:
        steps("recording its import snapshot")
        _snapshot(stored)
    if "json" in flags:
        found = {**_described(keeper, stored), "made": made, "generation": generation}
        _print_json({**found, "seconds": round(steps.seconds, 3)})
        return 0
    told = f"made in {steps.seconds:.1f} s" if made else "there already"
    print(f"{stored.path}: {told}, {stored.manifest.size / MEBIBYTE:,.0f} MiB, {stored.manifest.packages} packages")
    if generation is not None:
        print(f"generation {generation} is current; its Python: {stored.python}")
    return 0


def _pack(keeper: "Keeper", folder: str, flags: Flags) -> int:
    version = None
    if "python" in flags:
        parts = flags["python"].split(".")
        if len(parts) != 2 or not all(part.isdigit() for part in parts):
            raise UserError(
                f"--python {flags['python']} is not a Python version", "Write --python 3.12, for example.", 2
            )
        version = (int(parts[0]), int(parts[1]))
    content = keeper.pack(
        folder, Steps(), flags.get("variant", ""), extras_of(flags) or [], version, flags.get("machine")
    )
    if "json" in flags:
        _print_json(content)
        return 0
    files = content["files"]
    assert isinstance(files, list)
    size = sum(each["size"] for each in files) / MEBIBYTE
    print(f"{folder}: {len(files)} wheels, {size:,.0f} MiB, for Python {content['python']} on {content['machine']}")
    print(f"there: {startup.shown_command('env', 'create', '--from', folder)}")
    return 0


def _list(keeper: "Keeper", flags: Flags) -> int:
    found, others = keeper.sorted_out()
    generations = keeper.profile.generations()
    current = keeper.profile.current()
    if "json" in flags:
        _print_json(
            {
                "store": keeper.store.place,
                "current": None if current is None else current.number,
                "not_used": [{"what": each.what, "fix": each.fix} for each in others],
                "environments": [_described(keeper, stored) for stored in found],
                "generations": [
                    {"number": each.number, "environment": each.environment, "since": _date(each.since)}
                    for each in generations
                ],
            }
        )
        return 0
    print(f"store: {keeper.store.place}")
    for stored in found:
        marks = "fits this file" if keeper.fits(stored) else "of another lock"
        if not stored.runs():
            marks += ", its Python is gone"
        print(f"  {stored.name:<50} {stored.manifest.size / MEBIBYTE:>9,.0f} MiB  {marks}")
    for refused in others:
        print(f"  not used: {refused.what}")
    total = sum(stored.manifest.size for stored in found) / MEBIBYTE
    print(f"  {len(found)} environments{'':<36} {total:>9,.0f} MiB")
    for each in generations:
        mark = "->" if current is not None and each.number == current.number else "  "
        print(f"{mark} generation {each.number}: {each.environment}, {_date(each.since)}")
    return 0


def _switch(keeper: "Keeper", places: list[str], flags: Flags) -> int:
    generation = keeper.use(places[0]) if places else keeper.profile.rollback()
    stored = keeper.store.get(generation.environment)
    assert stored is not None
    if "json" in flags:
        _print_json({"generation": generation.number, **_described(keeper, stored)})
        return 0
    print(f"generation {generation.number} is current: {generation.environment}")
    if not keeper.fits(stored):
        print(f"note: it is not of this file's lock; {stored.python} runs the file that it was made for")
    return 0


def _prune(keeper: "Keeper", flags: Flags) -> int:
    dry = "dry-run" in flags
    outcome = keeper.prune(whole(flags, "keep", 2, 1), dry)
    freed = sum(size for _, size in outcome.removed)
    if "json" in flags:
        removed = [{"name": name, "bytes": size} for name, size in outcome.removed]
        kept = [{"name": name, "why": why} for name, why in outcome.kept]
        _print_json({"dry": dry, "generations": outcome.dropped, "removed": removed, "kept": kept, "bytes": freed})
        return 0
    for name, why in outcome.kept:
        print(f"kept: {name} ({why})")
    for name, size in outcome.removed:
        print(f"{'would remove' if dry else 'removed'}: {name}, {size / MEBIBYTE:,.0f} MiB")
    print(f"{freed / MEBIBYTE:,.0f} MiB {'would be ' if dry else ''}freed")
    if outcome.elsewhere > MEBIBYTE:
        print(f"note: {outcome.elsewhere / MEBIBYTE:,.0f} MiB are in uv's cache too, and stay there: `uv cache clean`")
    return 0


def _snapshot(stored: "Stored") -> None:
    """In the new environment's own Python, whose first run is then a fast one; nothing depends on it."""
    command = [*startup.python_command(stored.python), str(startup.bundle_path()), "env", "snapshot"]
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        why = next((line for line in lines if line.startswith("error: ")), lines[-1]).removeprefix("error: ")
        print(f"note: no import snapshot: {why}", file=sys.stderr)


def _is_own(keeper: "Keeper") -> bool:
    """Whoever may only read the store leaves its generations as they are."""
    return os.access(keeper.store.profiles, os.W_OK | os.X_OK)


def _described(keeper: "Keeper", stored: "Stored") -> dict[str, object]:
    return {"path": stored.path, "fits": keeper.fits(stored), "runs": stored.runs(), **stored.manifest.table}


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _print_json(value: object) -> None:
    import json

    print(json.dumps(value, indent=1))


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
