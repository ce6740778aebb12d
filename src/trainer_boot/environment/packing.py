"""All wheels of an environment in a folder, to carry them to where there is no network."""

from __future__ import annotations

import errno
import json
import os

from trainer_boot.environment import wheels
from trainer_boot.environment.refused import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_boot.environment.carried import Carried, File, Pin
    from trainer_boot.environment.running import Say

MANIFEST = "manifest.json"
FORMAT = 1


def pack(
    carried: Carried,
    folder: str,
    say: Say,
    variant: str = "",
    extras: Sequence[str] = (),
    target: wheels.Target | None = None,
) -> dict[str, object]:
    """Fills the folder with what `create` needs, uv included, and writes which files with which hashes. What is there
    already is kept if it is right: the same command goes on. Refused."""
    aim = target or wheels.Target()
    chosen = _chosen(carried, variant, extras, aim)
    try:
        os.makedirs(folder, exist_ok=True)
        wheels.fetch(chosen, folder, say, carried.index, aim)
        content: dict[str, object] = {
            "format": FORMAT,
            "lock": carried.digest,
            "python": f"{aim.version[0]}.{aim.version[1]}",
            "machine": aim.machine,
            "variant": variant,
            "extras": sorted(set(extras)),
            "files": [
                {"name": file.name, "hash": file.hash, "size": os.stat(os.path.join(folder, file.name)).st_size}
                for _, file in sorted(chosen, key=lambda pair: pair[1].name)
            ],
        }
        path = os.path.join(folder, MANIFEST)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refused(f"no space is left for {folder}", "Free space, and run the same command again.", 1) from None
        raise Refused(f"{folder}: {(error.strerror or str(error)).lower()}", "Give another folder.", 1) from None
    return content


def open_pack(folder: str, chosen: Sequence[tuple[Pin, File]]) -> None:
    """Refused unless the folder holds all these wheels, each with its locked hash. A folder without a manifest will do:
    what counts is in the file."""
    if not os.path.isdir(folder):
        raise Refused(f"{folder} is not a folder", "Make one on a machine with a network: `env pack FOLDER`.", 2)
    absent = [file.name for _, file in chosen if not os.path.isfile(os.path.join(folder, file.name))]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise Refused(
            f"{folder} lacks {absent[0]}{more}{_made_for(folder)}",
            "Complete it on a machine with a network, with this file and Python: `env pack FOLDER`.",
        )
    for _, file in chosen:
        wheels.require_hash(os.path.join(folder, file.name), file)


def _chosen(carried: Carried, variant: str, extras: Sequence[str], target: wheels.Target) -> list[tuple[Pin, File]]:
    pins = carried.here(variant, extras, target.markers())
    chosen = [(pin, wheels.best(pin, target)) for pin in pins]
    if carried.installer is not None:
        chosen.append((carried.installer, wheels.best(carried.installer, target)))
    return chosen


def _made_for(folder: str) -> str:
    try:
        with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
            found = json.load(file)
        variant = f", variant {found['variant']}" if found["variant"] else ""
        return f": it was made for Python {found['python']} on {found['machine']}{variant}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
