"""The import snapshot: Python code of the installed packages, served from one file instead of thousands.

`serve` before they are imported; `record_if_missing` at the end of a complete run makes one for the next start, or adds
what this run has imported beyond the one that served it. The rooms: snapshot_format (the file), snapshot_key (for which
environment it is), snapshot_place (where it is kept), snapshot_making, snapshot_serving.
"""

import time

from trainer_boot import snapshot_place
from trainer_boot.node_local import nearer
from trainer_boot.snapshot_format import Aside, open_snapshot
from trainer_boot.snapshot_key import compare, identity, site_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_boot.layers import Note
    from trainer_boot.snapshot_serving import SnapshotFinder

# beyond so many modules that came from files of their own, or texts that were compiled, it is made anew with them
WORTH_ADDING = 20
WORTH_COMPILING = 100
MAKING_SECONDS = 0.35


class _Serving:
    """What `serve` was asked for, and whether a new snapshot would be served."""

    def __init__(self, sites: "list[str]", cache: str | None, path: str, node_local: str, passed: str) -> None:
        self.sites = sites
        self.cache = cache
        self.path = path
        self.node_local = node_local
        self.passed = passed  # why snapshots in other places are not used
        self.remake = True
        self.why = passed


_serving: _Serving | None = None


def serve(
    check: str = "fast",
    *,
    sites: "Sequence[str] | None" = None,
    cache: str | None = None,
    node_local: str = "auto",
) -> "Note":
    """From now on modules that are in the snapshot come from it. A note: layer, state (on, aside), why, path, modules,
    bytes.

    `check`: fast (one stat a folder) or full (every RECORD, every source). `sites`: the site-packages folders (None:
    those on sys.path). `cache`: where the snapshot is kept (None: the usual place). `node_local`: as node_local.nearer
    has it. Never raises for a file that is
    missing, foreign or damaged: then imports are what they are without it.
    """
    global _serving
    from trainer_boot import snapshot_serving

    sites = site_folders() if sites is None else list(sites)
    path, passed, trusted = snapshot_place.find(identity(sites), cache)
    _serving = serving = _Serving(sites, cache, path, node_local, passed)
    snapshot_serving.withdraw()
    try:
        why = snapshot_serving.unusual() or ("" if sites else "there is no site-packages folder")
        if why:
            raise Aside(why, remake=False)
        if not trusted:
            raise Aside(passed)
        place, why = nearer(serving.path, node_local)
        serving.why = "; ".join(filter(None, (why, passed)))
        reader = open_snapshot(place)
        try:
            compare(reader.index, sites, check)
        except BaseException:
            reader.close()
            raise
    except Aside as aside:
        serving.remake = aside.remake
        why = "; ".join(dict.fromkeys(filter(None, (aside.why, passed))))
        return {"layer": "snapshot", "state": "aside", "why": why, "path": serving.path}
    return _on(serving, snapshot_serving.install(reader, sites))


def note_texts() -> None:
    """Before much is imported: what Python makes of text is noted, where the first snapshot is to be made."""
    from trainer_boot.snapshot_serving import running

    if _serving is not None and _serving.remake and running() is None:
        from trainer_boot import snapshot_generated

        snapshot_generated.note_all()


def going_on(node_local: str = "auto") -> "Note | None":
    """The note of `serve` again, where it was called before for the same and serves; else None."""
    from trainer_boot.snapshot_serving import running

    finder = running()
    if finder is None or _serving is None or (_serving.sites, _serving.node_local) != (site_folders(), node_local):
        return None
    return _on(_serving, finder)


def report() -> "Note":
    """What was served so far: layer, state, path, served (modules), placed (extension modules), damaged (names of those
    that came from their files since their code in the snapshot was damaged)."""
    from trainer_boot.snapshot_serving import running

    finder = running()
    if finder is None:
        return {"layer": "snapshot", "state": "off", "why": "nothing is served"}
    facts: Note = {
        "path": finder.reader.path,
        "served": finder.served,
        "placed": finder.placed,
        "damaged": list(finder.damaged),
    }
    return {"layer": "snapshot", "state": "on", "why": "", **facts}


def make(
    modules: "Iterable[str] | None" = None, *, sites: "Sequence[str] | None" = None, cache: str | None = None
) -> str:
    """Makes the snapshot of these modules (None: all that this process has imported); its path. Aside, OSError."""
    from trainer_boot import snapshot_making

    return snapshot_making.make(modules, site_folders() if sites is None else sites, cache)


def record_if_missing(seconds: float | None = MAKING_SECONDS) -> "Note":
    """At the end of a run: makes a snapshot where none, or one of another environment, was found, or where many modules
    were not in it. A note: layer, state (on: there is one for the next start; aside; off), why, made, path, seconds.

    Does nothing where `serve` was not called. Never waits for another process; after `seconds` (None: never) it
    contents itself with what it has, and the next run goes on. Raises nothing.
    """
    began = time.monotonic()
    note: Note = {"layer": "snapshot", "state": "off", "why": "not asked for", "made": False}
    if _serving is None:
        return note
    try:
        path = _record(_serving, seconds)
    except Aside as aside:
        return {**note, "state": "aside", "why": aside.why}
    except Exception as error:  # the run is complete: nothing about the next start may spoil it
        return {**note, "state": "aside", "why": f"{type(error).__name__}: {error}"}
    note.update(state="on", why="", made=bool(path), path=path, seconds=round(time.monotonic() - began, 3))
    return note


def pause() -> None:
    """Ends serving; what was imported stays, and a snapshot may still be recorded."""
    from trainer_boot import snapshot_serving

    snapshot_serving.withdraw()
    note_texts()


def withdraw() -> None:
    """Ends serving, as if `serve` had not been called; what was imported stays."""
    global _serving
    from trainer_boot import snapshot_serving

    _serving = None
    snapshot_serving.withdraw()


def _on(serving: _Serving, finder: "SnapshotFinder") -> "Note":
    facts: Note = {"path": serving.path, "modules": len(finder.modules), "bytes": finder.reader.size}
    return {"layer": "snapshot", "state": "on", "why": serving.why, **facts}


def _record(serving: _Serving, seconds: float | None) -> str:
    """The path of the new snapshot; "" where the one that serves will do."""
    import sys

    from trainer_boot import snapshot_choice, snapshot_generated, snapshot_making
    from trainer_boot.snapshot_serving import running

    finder = running()
    if finder is None and not serving.remake:
        raise Aside("a new one would not be served either", remake=False)
    if finder is not None:
        compare(finder.reader.index, serving.sites, "fast")
        fresh = [name for name in sys.modules if name not in finder.modules and name not in finder.extensions]
        if snapshot_generated.lacking() < WORTH_COMPILING:
            if snapshot_choice.foreign(fresh, serving.sites) < WORTH_ADDING:
                return ""
            if sum(1 for _ in snapshot_choice.choose(fresh, serving.sites)) < WORTH_ADDING:
                return ""
    return snapshot_making.make(None, serving.sites, serving.cache, seconds, finder.reader if finder else None)
