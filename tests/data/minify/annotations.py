"""Annotations that are read while the program runs."""
import dataclasses
import functools
import inspect
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, get_type_hints

from shapes import Settings, Size, Stepped

if TYPE_CHECKING:
    from collections.abc import Mapping

    Table = Mapping[str, int]
else:
    Table = dict


class Run(Settings):  # an heir of an heir
    updates: int


class Trial(Run, total=False):
    score: float


@dataclass
class Plan:
    rate: float = 0.5
    known: ClassVar[dict] = {}
    start: InitVar[int] = 2
    _: KW_ONLY
    names: list = field(default_factory=list)
    bare: int = 4

    def __post_init__(self, start):
        self.derived = start + 1


def frozen(cls):
    return dataclass(frozen=True)(cls)


@frozen
class Point:
    x: int
    label: str = "p"


@functools.singledispatch
def kind(value):
    return "something"


@kind.register
def _(value: int):
    return "number"


@kind.register
def _(value: "dict"):
    return "table"


def converting(function):
    """Arguments become what their annotation says."""
    parameters = inspect.signature(function).parameters
    return lambda **given: function(**{name: parameters[name].annotation(text) for name, text in given.items()})


@converting
def fit(steps: int, rate: float) -> "list":
    return [steps, rate]


class Columns(type):
    def __new__(meta, name, bases, body):
        made = super().__new__(meta, name, bases, body)
        made.columns = list(body.get("__annotations__", {}))
        return made


class Row(metaclass=Columns):
    key: int
    amount: Annotated[float, "metres"] = 0.0


class Counter:
    steps = 1


def local():
    here: int = 3
    return here


if __name__ == "__main__":
    print(sorted(Trial.__annotations__), sorted(Trial.__required_keys__), get_type_hints(Run))
    print([each.name for each in dataclasses.fields(Plan)], Plan(0.25, 5, names=["a"]), Plan(0.25, 5).derived)
    print(Point(1), Size(1), kind(1), kind({}), kind("x"), fit(steps="3", rate="0.5"), Row.columns)
    print(get_type_hints(Row, include_extras=True), isinstance(Counter(), Stepped), local(), Table)
