import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.errors import UserError
from trainer.user_code import load_object


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_file_beside_others(folder: Path) -> None:
    (folder / "code").mkdir()
    (folder / "code" / "own_helper.py").write_text("answer = 42\n")
    (folder / "code" / "own_thing.py").write_text(
        "from own_helper import answer\nclass Outer:\n    class Inner:\n        pass\ndef give():\n    return answer\n"
    )
    give = load_object("code/own_thing.py:give", "data.dataset")
    assert callable(give) and give() == 42
    assert load_object("code/own_thing.py:give", "model.build") is give  # loaded once
    assert load_object(str(folder / "code" / "own_thing.py") + ":give", "x") is give
    inner = load_object("code/own_thing.py:Outer.Inner", "x")
    assert isinstance(inner, type) and inner.__qualname__ == "Outer.Inner"


def test_its_objects_can_be_sent_to_another_process(folder: Path) -> None:
    (folder / "own_sent.py").write_text("class Sent:\n    def __init__(self):\n        self.value = 5\n")
    sent = load_object("own_sent.py:Sent", "x")
    assert isinstance(sent, type)
    script = "import pickle, sys; sys.path.insert(0, sys.argv[1]); print(pickle.load(sys.stdin.buffer).value)"
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], input=pickle.dumps(sent()), capture_output=True, check=True
    )
    assert done.stdout == b"5\n"


def test_a_name_that_is_taken_is_left_alone(folder: Path) -> None:
    import json

    for name in ("json", "queue"):
        (folder / f"{name}.py").write_text(f"mine = '{name}'\n")
        assert load_object(f"{name}.py:mine", "x") == name
        assert load_object(f"{name}.py:mine", "x") == name
    assert sys.modules["json"] is json
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    for place in ("a", "b"):
        (folder / place / "own_same.py").write_text(f"where = '{place}'\n")
    assert [load_object(f"{place}/own_same.py:where", "x") for place in "abab"] == ["a", "b", "a", "b"]
    (folder / "odd-name.v2.py").write_text("x = 1\n")
    assert load_object("odd-name.v2.py:x", "x") == 1


def test_modules(folder: Path) -> None:
    assert load_object("json.decoder:JSONDecoder", "x") is __import__("json").JSONDecoder
    (folder / "own_package").mkdir()
    (folder / "own_package" / "__init__.py").write_text("")
    (folder / "own_package" / "part.py").write_text("value = 7\n")
    assert load_object("own_package.part:value", "x") == 7


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("thing", "does not say what to load"),
        (":name", "does not say what to load"),
        ("file.py:", "does not say what to load"),
        ("missing.py:name", "there is no file .*missing.py"),
        ("no_such_package_here.part:name", "there is no module 'no_such_package_here'"),
        ("json.nothing:name", "there is no module 'json.nothing'"),
        ("own_good.py:buidl", r"has no 'buidl'"),
        ("own_bad.py:x", r"own_bad\.py raised ZeroDivisionError: division by zero \(.*own_bad\.py, line 2\)"),
        ("own_exit.py:x", r"own_exit\.py raised SystemExit: 1"),
        ("own_syntax.py:x", r"own_syntax\.py raised SyntaxError: .*own_syntax\.py, line 1"),
        ("own_import.py:x", r"raised ModuleNotFoundError: No module named 'no_such_thing_here'"),
        ("own_import:x", r"raised ModuleNotFoundError: No module named 'no_such_thing_here'"),
    ],
)
def test_mistakes_are_named(folder: Path, spec: str, said: str) -> None:
    (folder / "own_good.py").write_text("def build():\n    pass\n")
    (folder / "own_bad.py").write_text("x = 1\nx = 1 / 0\n")
    (folder / "own_exit.py").write_text("raise SystemExit(1)\n")
    (folder / "own_syntax.py").write_text("x = = 1\n")
    (folder / "own_import.py").write_text("import no_such_thing_here\n")
    with pytest.raises(UserError, match=said) as error:
        load_object(spec, "model.build")
    assert error.value.status == 2 and error.value.fix and "model.build" in error.value.what
    if "buidl" in spec:
        assert error.value.fix == "Did you mean 'build'?"
    half_loaded = {"own_bad", "own_exit", "own_syntax", "own_import"}
    assert not half_loaded & set(sys.modules)
