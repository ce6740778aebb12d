"""Splits a command's arguments into settings, the command's own flags and places. No prefixes, no guessing."""

from collections.abc import Mapping, Sequence

from trainer.errors import UserError


class Arguments:
    """`settings`: (section.key, text) pairs; `flags`: own flags by name without dashes; `places`: the rest."""

    def __init__(self) -> None:
        self.settings: list[tuple[str, str]] = []
        self.flags: dict[str, str] = {}
        self.places: list[str] = []


def split(arguments: Sequence[str], own: Mapping[str, bool], most_places: int, command: str) -> Arguments:
    """`own`: the command's flags -> whether one takes a value. Every mistake is a UserError with status 2."""
    found = Arguments()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word == "--":
            if word.startswith("-") and len(word) > 1:
                raise UserError(f"unknown flag {word}", f"`trainer {command} --help` lists the flags.", 2)
            found.places.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if "." not in name and name not in own:
            raise UserError(f"unknown flag --{name}", _hint(name, own, command), 2)
        if own.get(name, True):
            if not equals:
                if not rest:
                    raise UserError(f"--{name} needs a value", f"Write --{name} VALUE.", 2)
                value = rest.pop(0)
        elif equals:
            raise UserError(f"--{name} takes no value", f"Write --{name} alone.", 2)
        if "." in name:
            found.settings.append((name, value))
        else:
            found.flags[name] = value
    if len(found.places) > most_places:
        raise UserError(f"too many arguments: {found.places[most_places]}", f"See `trainer {command} --help`.", 2)
    return found


def whole(flags: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    """The whole number of flag `name`."""
    text = flags.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise UserError(f"--{name}: {text!r} is not a whole number", f"Write --{name} 2, for example.", 2) from None
    if value < least:
        raise UserError(
            f"--{name} must be at least {least}, not {value}", f"Write --{name} {max(least, 1)}, for example.", 2
        )
    return value


def real(flags: Mapping[str, str], name: str, default: float, least: float = 0.0) -> float:
    """Return the number of flag `name`, which is finite and at least `least`; a default may be anything."""
    text = flags.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        raise UserError(
            f"--{name}: {text!r} is not a number of at least {least:g}", f"Write --{name} 1.0, for example.", 2
        )
    return value


def _hint(name: str, own: Mapping[str, bool], command: str) -> str:
    from trainer import suggestions

    close = suggestions.nearest(name, list(own))
    setting = "" if close else suggestions.setting("", name)
    if close or setting:
        return f"Did you mean --{close or setting}?"
    return f"`trainer {command} --help` lists the flags; a setting is given as --section.key VALUE."
