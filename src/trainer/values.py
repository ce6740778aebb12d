"""One value of a setting: from text or TOML to its declared type, and whether it may be that. No torch."""

import math
from typing import Any

from trainer.errors import UserError
from trainer.settings import Setting

TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
_KINDS: dict[Any, str] = {
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a table",
}


def literal(text: str) -> object:
    """A TOML value where `text` is one, else the text itself: `--model.options.depth 3` is a number."""
    import tomllib

    try:
        value: object = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text
    return value


def from_text(text: str, kind: Any, shown: str) -> object:
    """Return a flag or variable as the declared type `kind`; `shown`: its name for errors."""
    if kind is str:
        return text
    if kind is bool:
        if text.lower() in TRUE or text.lower() in FALSE:
            return text.lower() in TRUE
        raise UserError(f"{shown}: {text!r} is not a boolean", f"Write {shown} true or {shown} false.", 2)
    if kind is int or kind is float:
        try:
            return kind(text)
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            raise UserError(f"{shown}: {text!r} is not {wanted}", f"Write {shown} {_as_digits(text)}.", 2) from None
    if kind == dict[str, object] or text.startswith("["):
        return typed(literal(text), kind, shown)
    parts = [part for part in text.split(",") if part]
    inner = _member(kind)
    return parts if inner is str else [from_text(part, inner, shown) for part in parts]


def _as_digits(text: str) -> str:
    """`1e9` as the whole number that it stands for; an example where it stands for none."""
    try:
        value = float(text)
    except ValueError:
        return "8"
    return str(int(value)) if math.isfinite(value) and value == int(value) else "8"


def _member(kind: Any) -> Any:
    """What a list is of."""
    return {list[int]: int, list[float]: float}.get(kind, str)


def typed(value: object, kind: Any, shown: str) -> object:
    """A TOML value as the declared type; a bool is no number and 8.0 is no whole number."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (bool, int, float, str):
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
    elif kind == dict[str, object]:
        if isinstance(value, dict):
            return value
    elif isinstance(value, list):
        return [typed(item, _member(kind), shown) for item in value]
    elif isinstance(value, str) and kind == list[str]:
        return [value]
    wanted = _KINDS.get(kind, "a table" if kind == dict[str, object] else "a list")
    given = _KINDS.get(type(value), f"a {type(value).__name__}")
    raise UserError(f"{shown} must be {wanted}, not {given}: {value!r}", _write(kind, value), 2)


def _write(kind: Any, value: Any) -> str:
    """Return what to write instead of a value of the wrong type."""
    if kind is str:
        return f'Write "{value}" in quotes.' if isinstance(value, bool | int | float) else "Write a text in quotes."
    if kind is bool:
        return "Write true or false, without quotes."
    if kind is int or kind is float:
        try:
            meant = kind(value)
        except (ValueError, TypeError, OverflowError):
            return f"Write {_KINDS[kind]} without quotes."
        exact = not isinstance(value, bool | float) or (meant == value and not isinstance(value, bool))
        return f"Write {meant}." if exact else f"Write {_KINDS[kind]}."
    return "Write a table, as in { depth = 3 }." if kind == dict[str, object] else "Write a list, as in [1, 2]."


def check(declared: Setting, value: object, shown: str) -> None:
    """Raise a UserError unless `value` is in the range and among the choices of its setting."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise UserError(f"{shown} must be a finite number, not {value}", "Give a finite number.", 2)
        if declared.minimum is not None and value < declared.minimum:
            least = f"{declared.minimum:g}"
            raise UserError(f"{shown} must be at least {least}, not {value}", f"Give a number of at least {least}.", 2)
        if declared.above is not None and value <= declared.above:
            least = f"{declared.above:g}"
            raise UserError(f"{shown} must be above {least}, not {value}", f"Give a number above {least}.", 2)
        if declared.maximum is not None and value > declared.maximum:
            raise UserError(
                f"{shown} must be at most {declared.maximum}, not {value}",
                f"Give a number up to {declared.maximum}.",
                2,
            )
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and "\0" in text:
            raise UserError(f"{shown} contains a NUL character: {text!r}", "Remove the NUL character.", 2)
    if declared.choices and value not in declared.choices:
        from trainer import suggestions

        hint = suggestions.did_you_mean(str(value), declared.choices)
        raise UserError(
            f"{shown} cannot be {value!r}", f"{hint} Choose one of {', '.join(declared.choices)}.".strip(), 2
        )
