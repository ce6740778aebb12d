"""The one door from the trainer to what starts it: the built file, or nothing in a checkout."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trainer_boot.environment import Problem
    from trainer_boot.finder import BundleFinder
    from trainer_boot.layers import Note
    from trainer_boot.report import Phase

_layers_on = False


def bundle_path() -> str | None:
    """Absolute path of the file that this process was started from; None in a checkout or an installed package."""
    finder = _running()
    return None if finder is None else finder.archive.path


def build_info() -> dict[str, Any] | None:
    """What the build wrote down about itself, or None where there was no build.

    Keys: name, version, commit (None if built outside of git), dirty, lock_sha256, python (minor version -> bytecode
    magic number), passes, entry, format, sha256 (of files, originals and code).
    """
    from trainer_boot.layout import BUILD_INFORMATION

    return _json(BUILD_INFORMATION)  # type: ignore[no-any-return]  # JSON of our own making


def requirements() -> list[dict[str, object]] | None:
    """What the lock asks of the environment and what is bundled, as trainer_boot.environment has it; None: no build."""
    from trainer_boot.layout import REQUIREMENTS

    return _json(REQUIREMENTS)  # type: ignore[no-any-return]  # JSON of our own making


def check_environment() -> list[Problem]:
    """The differences between the environment and the lock that the file carries; none where there is no build."""
    from trainer_boot.environment import check, installed

    wanted = requirements()
    return [] if wanted is None else check(wanted, installed(), bundled=True)


def entry_command() -> list[str]:
    """The words that start this trainer again, from anywhere, on this machine; the command's own words follow."""
    path = bundle_path()
    return [sys.executable, path] if path is not None else [sys.executable, "-m", "trainer"]


def modules() -> list[str]:
    """The names of the bundled modules, sorted; none where there is no build."""
    finder = _running()
    return [] if finder is None else sorted(finder.modules)


def damage() -> list[str]:
    """Reads every byte of the file: a sentence for each thing that is not as it was built."""
    finder = _running()
    if finder is None:
        return []
    from trainer_boot.integrity import damage

    return damage(finder)


def layers() -> tuple[str, ...]:
    """The names of all layers of a fast start."""
    from trainer_boot.layers import LAYERS

    return LAYERS


def put_on(names: list[str], check: str) -> list[Note]:
    """Puts the named layers of a fast start on; a note each says whether it is on, off, or has stepped aside, and why.

    Before the first `import torch` of the process, or those that have to come first step aside.
    """
    global _layers_on
    from trainer_boot import layers

    _layers_on = bool(names)
    return layers.put_on(names, check)


def take_off() -> None:
    """Everything is imported: what holds for the time of importing only ends. Does nothing where no layer is on."""
    global _layers_on
    if _layers_on:
        from trainer_boot import layers

        _layers_on = False
        layers.take_off()


def served() -> dict[str, object]:
    """What the snapshot has served so far, for the report: served (number of modules), damaged (their names)."""
    from trainer_boot import snapshot

    return {name: value for name, value in snapshot.report().items() if name in ("served", "damaged")}


def flush(why: str) -> None:
    """Runs what waits of torch's modules, before work that needs many of them; nothing where no layer is on."""
    lazy = sys.modules.get("trainer_boot.lazy")
    if lazy is not None:
        lazy.flush(why)


def record_snapshot() -> Note:
    """At the end of a run: makes the snapshot that the next start is served from, where there is none; a note. Never
    fails."""
    try:
        from trainer_boot import snapshot

        return snapshot.record_if_missing()
    except Exception as error:  # training is done; nothing about the next start may spoil it
        return {"layer": "snapshot", "state": "aside", "why": f"{type(error).__name__}: {error}"}


def begin() -> None:
    """A run begins: what the process did before is the first phase of its start."""
    from trainer_boot import report

    report.begin()


def mark(name: str) -> None:
    """Ends the phase `name` of the start."""
    from trainer_boot.report import mark

    mark(name)


def phases() -> list[Phase]:
    """The phases of the start so far: name, begin and end in nanoseconds of time.monotonic_ns()."""
    from trainer_boot import report

    return report.phases()


def _running() -> BundleFinder | None:
    from trainer_boot.finder import running

    return running()


def _json(path: str) -> Any:
    finder = _running()
    if finder is None:
        return None
    import json

    return json.loads(finder.archive.members.read(path))
