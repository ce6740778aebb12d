"""Data classes of one kind, made many times: what the standard library would have made."""

import dataclasses
from types import ModuleType
from typing import Any

import pytest

from trainer_boot.overlays import same_class
from trainer_boot.overlays.known import Unknown

TEXT = """
from dataclasses import dataclass

def make_autograd_impl(kind):
    @dataclass
    class Metadata:
        keyset: int
        keyword_only_args: kind

    return Metadata
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = ModuleType("made")
    exec(compile(TEXT, "made", "exec", dont_inherit=True), made.__dict__)
    monkeypatch.setattr(same_class, "need_function", lambda *_: None)
    return made


def parts(cls: Any) -> dict[str, object]:
    """What of a class can be compared."""
    one, other = cls(1, {"a": 2}), cls(1, {"a": 2})
    fields = [(field.name, field.type, field.default) for field in dataclasses.fields(cls)]
    return {
        "names": sorted(vars(cls)),
        "fields": fields,
        "equal": (one == other, one == cls(2, {}), one == object()),
        "repr": repr(one),
        "hash": cls.__hash__,
        "doc": cls.__doc__,
        "match": cls.__match_args__,
        "frozen": cls.__dataclass_params__.frozen,
        "init": (cls.__init__.__qualname__, cls.__init__.__annotations__),
    }


def test_the_second_is_what_dataclass_would_have_made(module: Any) -> None:
    expected = parts(module.make_autograd_impl(dict))
    restore = same_class.data_classes(module)
    first, second = module.make_autograd_impl(dict), module.make_autograd_impl(dict)
    assert first is not second
    assert parts(first) == parts(second) == expected
    assert first(1, {}) != second(1, {})  # of two classes
    assert second.__init__ is first.__init__
    other = module.make_autograd_impl(list)
    assert other.__init__ is not first.__init__
    assert parts(other)["fields"] != expected["fields"]
    restore()
    assert module.dataclass is dataclasses.dataclass
    assert module.make_autograd_impl(dict).__init__ is not first.__init__


def test_it_steps_aside_for_another_decorator(module: Any) -> None:
    module.dataclass = lambda cls: cls
    with pytest.raises(Unknown, match=r"made\.dataclass is not the standard library's"):
        same_class.data_classes(module)
