"""Names that a module takes from one that waits; nothing here imports torch."""

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainer_boot.lazy import names
from trainer_boot.lazy.finder import LazyFinder
from trainer_boot.lazy.modules import NOTHING, Waiting, dictionary

NEEDED = '''
"""Takes names."""
from waiting_one import KEYS, Options, act
def region(options: Options | None = None, size: int = 3):
    """Keys: {keys}."""
region.__doc__ = region.__doc__.format(keys=", ".join(f"``{key}``" for key in sorted(KEYS)))
def other():
    return act()
'''
WAITING = "KEYS = {'b', 'a'}\nclass Options:\n    pass\ndef act():\n    return 7\n"


@pytest.fixture
def needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, Waiting]]:
    """A module whose body has taken three names from one that waits."""
    (tmp_path / "needed_one.py").write_text(NEEDED)
    (tmp_path / "waiting_one.py").write_text(WAITING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    origins = {name: ("waiting_one", name) for name in ("KEYS", "Options", "act")}
    monkeypatch.setattr(names, "LATE", {"needed_one": origins})
    waiting = Waiting()
    late = names.Late(waiting, "needed_one")

    def known(module: str, name: str) -> Any:
        found = late.stand_in(module, name)
        return NOTHING if found is None else found

    waiting.known = known
    alone: frozenset[str] = frozenset()
    awaited = {"needed_one": late.executed}
    sys.meta_path.insert(
        0, LazyFinder(waiting, frozenset(("waiting_one",)), alone.__contains__, lambda spec: True, awaited)
    )
    yield importlib.import_module("needed_one"), waiting
    for name in ("needed_one", "waiting_one"):
        sys.modules.pop(name, None)


def test_they_are_not_there_until_someone_asks(needed: tuple[ModuleType, Waiting]) -> None:
    module, waiting = needed
    assert not waiting.whole
    assert not {"KEYS", "Options", "act", "region"} & set(dictionary(module))
    assert module.other is not None
    assert not waiting.whole
    with pytest.raises(AttributeError, match="module 'needed_one' has no attribute 'nothing'"):
        module.nothing  # noqa: B018  # asked for on purpose
    assert not waiting.whole


@pytest.mark.parametrize("name", ["KEYS", "act", "region"])
def test_then_all_are_as_if_the_body_had_had_them(needed: tuple[ModuleType, Waiting], name: str) -> None:
    module, waiting = needed
    assert getattr(module, name) is not None
    assert waiting.whole
    plain = ModuleType("needed_one")
    exec(NEEDED, vars(plain))
    assert sorted(set(vars(module)) - {"__cached__", "__file__"}) == sorted(vars(plain))
    assert module.region.__doc__ == plain.region.__doc__ == "Keys: ``a``, ``b``."
    assert str(inspect.signature(module.region)) == str(inspect.signature(plain.region))
    assert module.other() == 7
    assert module.act is sys.modules["waiting_one"].act


def test_the_list_of_names_is_the_whole_list(needed: tuple[ModuleType, Waiting]) -> None:
    module, _ = needed
    assert {"KEYS", "Options", "act", "region", "other"} <= set(dir(module))
    assert "__getattr__" not in dir(module)


def test_importing_one_brings_it(needed: tuple[ModuleType, Waiting]) -> None:
    from needed_one import Options  # type: ignore[import-not-found]  # made by the fixture

    assert Options is sys.modules["waiting_one"].Options
