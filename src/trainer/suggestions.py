"""Which setting, flag or variable the user may have meant. Imported only when something is wrong."""

import difflib
from collections.abc import Sequence

from trainer.config import keys


def nearest(name: str, names: Sequence[str], cutoff: float = 0.6) -> str:
    """Return the one of `names` that is spelled most like `name`; "" if none is close."""
    close = difflib.get_close_matches(name, names, 1, cutoff)
    return close[0] if close else ""


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return `Did you mean 'x'?` for the nearest of `names`, or ""."""
    close = nearest(name, names)
    return f"Did you mean {close!r}?" if close else ""


def setting(section: str, key: str) -> str:
    """Return the `section.key` that was meant by an unknown one; "" if nothing is like it.

    A misspelt key of the same section comes first, then the same key in another section, then the misspelt key in any
    section, then a setting whose help has the key's words, as `learning_rate` is in the help of `optim.lr`.
    """
    names = [f"{s}.{k}" for s, k, _ in keys()]
    own = {k: f"{section}.{k}" for s, k, _ in keys() if s == section}
    everywhere: dict[str, str] = {}
    for s, k, _ in keys():
        everywhere.setdefault(k, f"{s}.{k}")
    like_section = nearest(section, sorted({s for s, _, _ in keys()}))
    corrected = f"{like_section}.{key}"
    if corrected in names:
        return corrected
    return (
        own.get(nearest(key, list(own), 0.7), "")
        or everywhere.get(key, "")
        or everywhere.get(nearest(key, list(everywhere), 0.8), "")
        or _by_help(section, key)
        or nearest(f"{section}.{key}", names, 0.75)
    )


def variable(name: str, others: Sequence[str]) -> str:
    """Return the environment variable that was meant by the unknown `TRAINER_...`; `others`: those of no setting."""
    known = {f"TRAINER_{s}_{k}".upper(): f"{s}.{k}" for s, k, _ in keys()}
    rest = name.removeprefix("TRAINER_").lower()
    if close := nearest(name, [*known, *others], 0.9):
        return close
    section, _, key = rest.partition("_")
    for guess in (setting("", rest), setting(section, key) if key else ""):
        if guess:
            return "TRAINER_" + guess.replace(".", "_").upper()
    return nearest(name, [*known, *others])


def _by_help(section: str, key: str) -> str:
    words = key.replace("_", " ").lower()
    if len(words) < 4:
        return ""
    found = [
        (s != section, len(declared.help), f"{s}.{k}") for s, k, declared in keys() if words in declared.help.lower()
    ]
    return min(found)[2] if found else ""
