"""Typed settings without `dataclasses`, whose import alone costs more than the whole of `--version`.

A section is a class with annotated `setting(...)` attributes. `Section()` has every default; values are read, checked
and converted by `trainer.config`.
"""

from typing import Any, TypeVar, cast

T = TypeVar("T")


class Setting:
    """One key of a section: its default, its one-line help and what values it takes."""

    __slots__ = ("above", "choices", "code", "default", "help", "maximum", "minimum")

    def __init__(
        self,
        default: Any,
        help: str,
        minimum: float | None,
        above: float | None,
        choices: tuple[str, ...],
        maximum: float | None,
        code: bool,
    ) -> None:
        self.default = default
        self.help = help
        self.minimum = minimum
        self.maximum = maximum
        self.above = above
        self.choices = choices
        self.code = code


def setting(
    default: T,
    help: str,
    *,
    minimum: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    maximum: float | None = None,
    code: bool = False,
) -> T:
    """Declare a key. It is typed as its default, so that `config.optim.lr` is a float to the type checker.

    `code`: its value names code that is run; its environment variable does not count under `python -E` and `-I`.
    """
    return cast(T, Setting(default, help, minimum, above, choices, maximum, code))


class Section:
    """A group of settings; attributes not given take their defaults."""

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        for name, annotation in cls.__annotations__.items():
            declared = cls.__dict__.get(name)
            if isinstance(declared, Setting):
                default = declared.default
                self.__dict__[name] = default.copy() if isinstance(default, list | dict) else default
            else:
                self.__dict__[name] = annotation()
        for name, value in values.items():
            if name not in self.__dict__:
                raise TypeError(f"{cls.__name__} has no setting {name!r}")
            self.__dict__[name] = value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items())
        return f"{type(self).__name__}({inside})"

    __hash__ = None  # type: ignore[assignment]  # mutable, so not a key
