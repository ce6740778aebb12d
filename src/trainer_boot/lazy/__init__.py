"""Modules that a proven flow never uses wait until somebody asks for anything in them.

While torch is imported, some fifty of its modules (table.py) are put into sys.modules without running their bodies, and
the four hundred that those would import are not even looked for. Whoever touches one of them, asks torch for something
that their bodies would have registered (hooks.py), or wants the compiler, has all bodies run first, in the order of a
plain start: from then on the process is that of a plain start. So a touch costs what was saved, and nothing else.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.lazy.modules import Waiting

_waiting: "Waiting | None" = None
_note: dict[str, object] = {}


def install(check: str = "fast") -> dict[str, object]:
    """Before torch is imported. The layer's note: layer, state (on, aside), why, modules (names of those that wait),
    touched (what brought them: module, name, why, by). It is kept true. `check`: fast (torch's build and the sizes of
    the modules' sources) or full (the sources' digests too)."""
    global _waiting
    if _waiting is not None and _note["state"] == "on":
        return _note
    _note.clear()
    _note.update(layer="lazy", state="aside", why="", modules=[], touched=[])
    if "torch" in sys.modules:
        _note["why"] = "torch is imported already"
        return _note
    try:
        from trainer_boot.lazy.modules import Waiting
    except ImportError as error:  # another Python may have other locks
        _note["why"] = str(error)
        return _note
    from trainer_boot.lazy.start import Start

    start = Start(Waiting(), _note, check)
    _note.update(state="on", why="until one is touched", modules=start.names, touched=start.waiting.touched)
    start.put_on()
    _waiting = start.waiting
    return _note


def flush(why: str = "asked to") -> None:
    """Runs all bodies that wait; nothing where none do."""
    if _waiting is not None and not _waiting.whole:
        _waiting.bring(why)
