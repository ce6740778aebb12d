"""What is not the known thing stays as it is, and the note says why; nothing here imports torch."""

import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

from trainer_boot import overlays
from trainer_boot.overlays import changes, known, watch


def one(number: int) -> int:
    """Something to change."""
    return abs(number)


def place(function: object) -> ModuleType:
    module = ModuleType("somewhere")
    vars(module)["one"] = function
    return module


def python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def test_the_known_function_is_taken() -> None:
    assert known.need_function(place(one), "one", {python(): known.digest(one.__code__)}) is one


def test_a_changed_function_is_not() -> None:
    def changed(number: int) -> int:
        return abs(number) + 0

    with pytest.raises(known.Unknown, match="not the known one"):
        known.need_function(place(changed), "one", {python(): known.digest(one.__code__)})


@pytest.mark.parametrize("instead", [None, 3, abs])
def test_nor_is_something_else(instead: object) -> None:
    with pytest.raises(known.Unknown, match="no plain function"):
        known.need_function(place(instead), "one", {python(): known.digest(one.__code__)})


def test_nor_is_an_unproven_python_or_torch() -> None:
    with pytest.raises(known.Unknown, match="Python"):
        known.need_function(place(one), "one", {"3.1": known.digest(one.__code__)})
    known.need_torch("2.15.0+cu132")
    with pytest.raises(known.Unknown, match=r"2\.16"):
        known.need_torch("2.16.0")


def test_the_digest_does_not_depend_on_where_the_function_stands() -> None:
    text = "def one(number):\n    return number in {'b', 'a', 'c'}\n"
    found = []
    for source in (text, "\n\n" + text):
        space: dict[str, Any] = {}
        exec(compile(source, f"file{len(source)}", "exec"), space)
        found.append(known.digest(space["one"].__code__))
    assert found[0] == found[1]


def test_a_change_is_taken_back_whole() -> None:
    def asks(number: int) -> int:
        return abs(number)

    assert isinstance(asks, FunctionType)
    original = asks.__code__
    restore = changes.exchange(asks, changes.renamed(original, {"abs": "float"}))
    assert asks(-2) == -2.0
    restore()
    assert asks.__code__ is original
    assert asks(-2) == 2


def test_what_someone_else_changed_since_is_left_alone() -> None:
    def asks() -> int:
        return 1

    def other() -> int:
        return 2

    def ours() -> int:
        return 3

    assert isinstance(asks, FunctionType)
    restore = changes.exchange(asks, ours.__code__)
    asks.__code__ = other.__code__
    restore()
    assert asks() == 2


def failing(error: Exception) -> Callable[[ModuleType], changes.Restore]:
    def put(_: ModuleType) -> changes.Restore:
        raise error

    return put


@pytest.mark.parametrize("error", [known.Unknown("it is another"), AttributeError("no attribute Optimizer")])
def test_an_overlay_steps_aside_with_the_reason(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    version = ModuleType("torch.version")
    vars(version)["__version__"] = "2.15.1"
    monkeypatch.setitem(sys.modules, "torch.version", version)
    monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch") or ModuleType("torch"))
    room = ModuleType("trainer_boot.overlays.room")
    vars(room)["put"] = failing(error)
    monkeypatch.setitem(sys.modules, room.__name__, room)
    overlay = overlays.Overlay("one", "torch", "room:put")
    overlay.put_on(ModuleType("torch"))
    assert overlay.note["state"] == "aside"
    assert str(error) in str(overlay.note["why"])
    overlay.step_aside("later")
    assert str(error) in str(overlay.note["why"])


@pytest.fixture
def path(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A folder on sys.path; what is imported from it is forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_tells_when_a_module_was_executed_and_when_one_is_wanted(path: Any) -> None:
    (path / "awaited_module.py").write_text("from importlib.util import find_spec\nloader = __spec__.loader\n")
    (path / "trigger_module.py").write_text("seen = list(__import__('awaited_module').calls)\n")
    calls: list[str] = []

    def executed(module: ModuleType) -> None:
        calls.append(f"executed {module.__name__}")
        vars(module)["calls"] = calls

    watcher = watch.Watcher(
        {"awaited_module"},
        lambda spec: calls.append(f"found {spec.name}"),
        executed,
        {"trigger_module"},
        lambda name: calls.append(f"wanted {name}"),
    )
    sys.meta_path.insert(0, watcher)
    module = __import__("awaited_module")
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert module.__spec__ is not None
    assert module.__loader__ is module.__spec__.loader is module.loader
    assert __import__("trigger_module").seen == [
        "found awaited_module",
        "executed awaited_module",
        "wanted trigger_module",
    ]


def test_an_error_of_the_module_is_its_own(path: Any) -> None:
    (path / "broken_module.py").write_text("raise ValueError('its own')\n")
    calls: list[ModuleType] = []
    sys.meta_path.insert(0, watch.Watcher({"broken_module"}, lambda spec: None, calls.append, set(), lambda name: None))
    with pytest.raises(ValueError, match="its own"):
        __import__("broken_module")
    with pytest.raises(ModuleNotFoundError):
        __import__("no_such_module")
    assert calls == []


def test_the_finder_behind_is_asked_for_what_is_wanted(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stepping aside in the middle of a search must not hide a finder from it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    note = overlays.install()
    assert str(note["state"]) == "on"
    asked: list[str] = []

    class Behind:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            asked.append(name)

    sys.meta_path.insert(1, Behind())  # as much of a finder as is asked for
    try:
        for finder in sys.meta_path:  # as importlib does
            finder.find_spec("torch._dynamo", [])
    finally:
        overlays.step_aside()
    assert set(asked) == {"torch._dynamo"}
    assert str(note["state"]) == "aside"
    assert not any(isinstance(finder, watch.Watcher) for finder in sys.meta_path)


def test_other_finders_are_asked_for_all_else() -> None:
    watcher = watch.Watcher({"torch"}, lambda spec: None, lambda module: None, {"torch._dynamo"}, lambda name: None)
    assert watcher.find_spec("distutils") is None
    assert watcher.find_spec("json") is None
