"""Modules that wait, made of small packages in a folder; nothing here imports torch."""

import copy
import importlib
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from trainer_boot.lazy.finder import LazyFinder
from trainer_boot.lazy.modules import Deferred, Waiting, dictionary

LOG = "waiting_log"
RAN = f"__import__('{LOG}').ran.append(__name__)\n"
Make = Callable[..., Waiting]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Gives a function: writes modules (name -> text; each tells when its body runs) and has those of `waits` wait."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)

    def write(waits: tuple[str, ...], alone: tuple[str, ...] = (), **texts: str) -> Waiting:
        (tmp_path / f"{LOG}.py").write_text("ran = []\n")
        for name, text in texts.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(RAN + text)
        waiting = Waiting()
        finder = LazyFinder(waiting, frozenset(waits), frozenset(alone).__contains__, lambda spec: True, {})
        sys.meta_path.insert(0, finder)
        return waiting

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def ran() -> list[str]:
    """The bodies that have run, in order."""
    found: list[str] = importlib.import_module(LOG).ran
    return found


def package(make: Make, **more: str) -> Waiting:
    """pack, pack.one and pack.two, of which all wait; base imports them. `more`: other texts, `init` for the package's,
    else by the last part of the name; `base` and `other` are no submodules."""
    texts = {
        "init": "from pack.two import number\n",
        "one": "import pack\nvalue = 1\n",
        "two": "number = 2\n",
        "base": "import sys, pack.one, pack.two\ntwo = sys.modules['pack.two']\n",
    } | more
    places = {"init": "pack/__init__", "base": "base", "other": "other"}
    return make(
        ("pack", "pack.one", "pack.two"), **{places.get(name, f"pack/{name}"): text for name, text in texts.items()}
    )


def test_no_body_runs_until_one_is_touched_then_all_do_in_the_order_of_a_plain_start(make: Make) -> None:
    waiting = package(make)
    base = importlib.import_module("base")
    assert ran() == ["base"]
    assert [type(each) for each in (base.pack, base.two)] == [Deferred, Deferred]
    assert base.two.number == 2
    assert ran() == ["base", "pack", "pack.two", "pack.one"]
    assert [type(each) for each in waiting.modules.values()] == [ModuleType] * 3
    assert sys.modules["pack"] is base.pack
    assert base.pack.one is sys.modules["pack.one"]
    assert waiting.whole
    assert [(each["module"], each["name"]) for each in waiting.touched] == [("pack.two", "number")]
    assert "test_modules" in waiting.touched[0]["by"]


@pytest.mark.parametrize("name", ["__name__", "__spec__", "__path__", "__file__", "__loader__", "__package__"])
def test_what_the_import_machinery_has_set_is_read_without_a_body(make: Make, name: str) -> None:
    package(make)
    pack = importlib.import_module("base").pack
    assert getattr(pack, name) is dictionary(pack)[name]
    assert isinstance(pack, ModuleType)
    assert repr(pack).startswith("<module 'pack' from ")
    assert ran() == ["base"]


def written(module: ModuleType) -> object:
    """Its number, once it has been set to 3."""
    module.number = 3  # type: ignore[attr-defined]  # any module may be given any name
    return vars(module)["number"]


def deleted(module: ModuleType) -> bool:
    """Is its number still there, once it has been taken away?"""
    del module.number
    return "number" in vars(module)


TOUCHES: dict[str, Callable[[ModuleType], object]] = {
    "dir": lambda module: "number" in dir(module),
    "vars": lambda module: "number" in vars(module),
    "doc": lambda module: module.__doc__ is None,
    "hasattr": lambda module: hasattr(module, "number") and not hasattr(module, "nothing"),
    "set": lambda module: written(module) == 3,
    "delete": lambda module: not deleted(module),
}


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES)
def test_all_else_runs_the_bodies_first(make: Make, touch: Callable[[ModuleType], object]) -> None:
    package(make)
    pack = importlib.import_module("base").pack
    assert touch(pack)
    assert "pack.one" in ran()


def test_copies_and_pickles_fail_as_those_of_any_module(make: Make) -> None:
    package(make)
    pack = importlib.import_module("base").pack
    with pytest.raises(TypeError) as plain:
        pickle.dumps(sys)
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError) as waiting:
            act(pack)
        assert str(waiting.value) == str(plain.value)


def test_a_submodule_that_does_not_wait_has_its_package_run_first(make: Make) -> None:
    package(make, three="from pack import number\n")
    importlib.import_module("base")
    assert importlib.import_module("pack.three").number == 2
    assert ran() == ["base", "pack", "pack.two", "pack.one", "pack.three"]


def test_one_that_its_package_imports_is_the_same_however_it_was_reached(make: Make) -> None:
    package(make, two="import pack.three\nnumber = 2\n", three="")
    importlib.import_module("base")
    three = importlib.import_module("pack.three")
    assert three is sys.modules["pack.three"]
    assert three.__spec__ is not None
    assert three.__spec__.name == "pack.three"
    assert ran().count("pack.three") == 1


def test_a_function_that_a_package_calls_like_its_submodule_stays_the_function(make: Make) -> None:
    package(make, two="def two():\n    return 2\nnumber = 2\n", init="from pack.two import two, number\n")
    pack = importlib.import_module("base").pack
    assert pack.two() == 2


def test_only_what_is_allowed_is_imported_without_the_bodies(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = package(make)
    importlib.import_module("base")
    finder = next(each for each in sys.meta_path if isinstance(each, LazyFinder))
    finder.allowed = frozenset(("torch.allowed",))
    for name in ("json.tool", "torch.allowed"):
        assert finder.find_spec(name) is None
        assert not waiting.whole
    assert finder.find_spec("torch.other") is None
    assert waiting.whole


def test_a_body_that_fails_says_so_and_is_run_again_at_the_next_touch(make: Make, tmp_path: Path) -> None:
    waiting = package(make, one="import sys\nsys.no_such_name\n")
    pack = importlib.import_module("base").pack
    with pytest.raises(ImportError, match=r"the body of pack\.one failed"):
        hasattr(pack, "number")
    assert not waiting.whole
    (tmp_path / "pack" / "one.py").write_text(RAN + "value = 'mended'\n")
    importlib.invalidate_caches()
    for cached in (tmp_path / "pack").glob("__pycache__/*"):
        cached.unlink()
    assert pack.one.value == "mended"
    assert ran().count("pack") == 1
    assert waiting.whole


def test_one_that_was_forgotten_is_imported_anew_and_the_old_one_still_works(make: Make) -> None:
    package(make)
    importlib.import_module("base")
    old = sys.modules.pop("pack.two")
    again = importlib.import_module("pack.two")
    assert again is not old
    assert (again.number, old.number) == (2, 2)
    assert sys.modules["pack.two"] is again
    assert importlib.reload(again) is again


def test_threads_that_touch_at_once_all_find_it_whole(make: Make) -> None:
    package(make, one="import time\ntime.sleep(0.05)\nvalue = 1\n")
    pack = importlib.import_module("base").pack
    start = threading.Barrier(6)
    found: list[object] = []

    def touch(number: int) -> None:
        start.wait()
        found.append(pack.one.value if number % 2 else importlib.import_module("pack.one").value)

    threads = [threading.Thread(target=touch, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert found == [1] * 6
    assert len(ran()) == len(set(ran()))


def test_threads_that_look_for_what_a_body_imports_do_not_hold_it_up(make: Make) -> None:
    slow = "import time\ntime.sleep(0.05)\n"
    package(
        make, one=slow + "import pack.three\nvalue = 1\n", three=slow + "import pack.two\nvalue = pack.two.number\n"
    )
    pack = importlib.import_module("base").pack
    start = threading.Barrier(6)
    found: list[object] = []

    def touch(number: int) -> None:
        start.wait()
        found.append(pack.one.value + 1 if number % 2 else importlib.import_module("pack.three").value)

    threads = [threading.Thread(target=touch, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert found == [2] * 6
    assert len(ran()) == len(set(ran()))


def test_an_import_that_waits_for_the_bodies_and_is_waited_for_by_one_ends(make: Make) -> None:
    slow = "import time\ntime.sleep(0.2)\nimport pack\nfound = pack.number\n"
    package(make, one="import time\ntime.sleep(0.1)\nimport other\nvalue = 1\n", other=slow)
    pack = importlib.import_module("base").pack
    found: dict[str, object] = {}
    threads = [
        threading.Thread(target=lambda: found.update(other=importlib.import_module("other").found)),
        threading.Thread(target=lambda: found.update(value=pack.one.value)),
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert found == {"other": 2, "value": 1}


def test_one_may_come_before_its_package_if_it_is_known_to_need_nothing_of_it(make: Make) -> None:
    texts = {"pack/__init__": "", "pack/one": "value = 1\n", "pack/two": "number = 2\n", "base": "import pack.one\n"}
    make(("pack", "pack.two"), alone=("pack.one",), **texts)
    base = importlib.import_module("base")
    assert dictionary(base.pack)["one"].value == 1
    assert ran() == ["base", "pack.one"]
    assert base.pack.one.value == 1
    assert ran() == ["base", "pack.one", "pack"]
