"""No garbage collection while modules are imported, and none of what they made ever after.

Importing makes hundreds of thousands of objects that stay: the collector looks them through again and again and finds
nothing. What was made by the end of the imports is set apart by `gc.freeze`, so that later collections pass over it;
until the process ends: what is still in a cycle then is finalized as ever (bindings of some libraries complain else).
"""

import atexit
import gc

_was_on: bool | None = None


def pause() -> dict[str, object]:
    """Stops the collector until `resume`; the layer's note."""
    global _was_on
    if _was_on is None:
        _was_on = gc.isenabled()
        gc.disable()
    if not _was_on:
        return {"layer": "gc", "state": "aside", "why": "collection was off already"}
    return {"layer": "gc", "state": "on", "why": "no collection until the imports are done"}


def resume() -> None:
    """Sets apart what there is; the collector goes on as before `pause`; nothing where it was not called."""
    global _was_on
    if _was_on is None:
        return
    was_on, _was_on = _was_on, None
    if was_on:
        # frozen first: enabled first, the next object made could start a look through all of them
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)
