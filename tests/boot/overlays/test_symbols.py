"""The module that waits for its content; nothing here imports torch."""

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainer_boot.overlays import changes, plain_shapes, symbols, watch
from trainer_boot.overlays.changes import Restore

TEXT = """
import waiting_counter
waiting_counter.count += 1
__all__ = ["guard_or_false", "other"]
def guard_or_false(value):
    return "the real one"
class GuardOnDataDependentSymNode(RuntimeError):
    pass
other = guard_or_false
"""


@pytest.fixture
def restores() -> list[Restore]:
    """What takes the change back."""
    return []


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restores: list[Restore]) -> Iterator[ModuleType]:
    """A deferred module; `waiting_counter.count` says how often it was executed."""
    (tmp_path / "waiting_module.py").write_text(TEXT)
    (tmp_path / "waiting_counter.py").write_text("count = 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(symbols, "SOURCE", sha256(TEXT.encode()).hexdigest()[:16])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    watcher = watch.Watcher(
        {"waiting_module"}, lambda spec: restores.append(symbols.deferred(spec)), lambda module: None, set(), print
    )
    sys.meta_path.insert(0, watcher)
    yield __import__("waiting_module")
    for name in ("waiting_module", "waiting_counter"):
        sys.modules.pop(name, None)
    symbols._contents.pop("waiting_module", None)


def count() -> int:
    return int(__import__("waiting_counter").count)


def within(name: str, text: str) -> dict[str, Any]:
    """The globals of a module of that name after the text."""
    space: dict[str, Any] = {"__name__": name}
    exec(text, space)
    return space


def test_torch_gets_plain_answers(waiting: ModuleType) -> None:
    space = within("torch.of", "from waiting_module import guard_or_false")
    assert space["guard_or_false"] is plain_shapes.guard_or_false
    assert count() == 0
    assert type(waiting) is symbols.Deferred


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine", "from waiting_module import guard_or_false"),
        ("torch.of", "from waiting_module import other"),
        ("torch.of", "from waiting_module import GuardOnDataDependentSymNode"),
        ("torch.of", "from waiting_module import *"),
        ("mine", "import waiting_module; vars(waiting_module)['other']"),
        ("mine", "import waiting_module; assert 'other' in dir(waiting_module)"),
        ("mine", "import waiting_module; waiting_module.other = 3"),
    ],
)
def test_whoever_wants_more_gets_all(waiting: ModuleType, name: str, text: str) -> None:
    within(name, text)
    assert count() == 1
    assert type(waiting) is ModuleType
    assert type(waiting.__loader__).__name__ == "SourceFileLoader"
    assert waiting.other in (3, waiting.guard_or_false)
    assert waiting.guard_or_false(True) == "the real one"


def test_those_that_catch_the_error_get_a_name_for_it(waiting: ModuleType) -> None:
    asking = symbols.CATCHING["GuardOnDataDependentSymNode"][0]
    space = within(asking, "from waiting_module import GuardOnDataDependentSymNode")
    assert space["GuardOnDataDependentSymNode"] is plain_shapes.GuardOnDataDependentSymNode
    assert count() == 0


def test_what_was_taken_becomes_real(waiting: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    taker = ModuleType("torch.taker")
    monkeypatch.setitem(sys.modules, "torch.taker", taker)
    exec("from waiting_module import guard_or_false as other_name", vars(taker))
    assert vars(taker)["other_name"] is plain_shapes.guard_or_false
    assert waiting.other is waiting.guard_or_false
    assert vars(taker)["other_name"] is waiting.guard_or_false
    assert plain_shapes.ANSWERS["guard_or_false"] is plain_shapes.guard_or_false


def test_once_the_compiler_is_wanted_the_answers_are_real(waiting: ModuleType, restores: list[Restore]) -> None:
    changes.all_of(restores)()
    space = within("torch.of", "from waiting_module import guard_or_false")
    assert space["guard_or_false"](True) == "the real one"
    assert count() == 1


def test_what_is_not_there_is_missing(waiting: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no attribute '__path__'"):
        _ = waiting.__path__
    assert count() == 0
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = waiting.missing
    assert count() == 1


def test_an_error_of_the_module_is_its_own(waiting: ModuleType) -> None:
    sys.modules["waiting_counter"] = None  # type: ignore[assignment]  # what makes its import fail
    with pytest.raises(ImportError):
        _ = waiting.other
    del sys.modules["waiting_counter"]
    assert waiting.other is waiting.guard_or_false
