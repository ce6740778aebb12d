"""What Python makes of text, from the snapshot: the same as made anew, and less is compiled."""

import dataclasses
import re
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.boot.test_snapshot import told
from trainer_boot import snapshot_generated
from trainer_boot.snapshot_generated import NOTHING, Generated, executed, lacking, packed, part

COMPILER: Any = import_module("re._compiler")
CLASSES: Any = dataclasses

ASK = """
    import json, sys
    from trainer_boot import snapshot
    if sys.argv[1] == "served":
        snapshot.serve()
        snapshot.note_texts()
    compiled = []
    def heard(event, arguments):
        if event == "compile" and arguments[1] == "<string>":
            compiled.append(arguments[0])
    sys.addaudithook(heard)
    import collections, dataclasses, inspect, re, re._compiler, typing

    @dataclasses.dataclass(order=True, frozen=True)
    class Point:
        x: int
        y: "typing.Any" = dataclasses.field(default_factory=list, compare=False)

    @dataclasses.dataclass(order=True, frozen=True)
    class Same:
        x: int
        y: "typing.Any" = dataclasses.field(default_factory=list, compare=False)

    Pair = collections.namedtuple("Pair", "left right", defaults=[2])
    made = [Point(1), Point(2, 3), Same(4), Pair(1), Pair(3, 4)]
    code = Point.__init__.__code__
    patterns = [re.compile(each, flags) for each, flags in
                [("(?P<a>[a-f]+)|x{2,}", re.I), (r"[^\\W\\d]+", 0), (r" a # b", re.X | re.A), ("a|b|ä", re.U)]]
    facts = [
        [repr(each) for each in made], Point(1) < Point(2), str(inspect.signature(Point)), Point.__init__.__module__,
        code.co_filename, code.co_firstlineno, code.co_code.hex(), code is Same.__init__.__code__,
        Point.__init__.__globals__ is globals(), Pair.__new__.__qualname__, Pair.__new__.__globals__["__name__"],
        [[each.pattern, each.flags, each.groups, dict(each.groupindex)] for each in patterns],
        [each.findall("xxx abc É ä a") for each in patterns],
        [each == re._compiler.compile(each.pattern, each.flags) for each in patterns],
    ]
    made = snapshot.record_if_missing(100)["made"]
    print(json.dumps([facts, len(compiled), made]))
    """


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[Generated]:
    """As in a process of its own."""
    here = Generated()
    monkeypatch.setattr(snapshot_generated, "_here", here)
    yield here
    here.withdraw()


def serve(module: ModuleType) -> None:
    """From now on, from what was noted."""
    blobs = packed(lambda _: b"", (NOTHING, NOTHING))
    texts, patterns = part(0, blobs[0]), part(1, blobs[1])
    executed(module, lambda place: blobs[place[0]], (texts, patterns))


def ask(cache: Path, way: str) -> list[Any]:
    found: list[Any] = told(ASK, way, cache)
    return found


def test_it_is_the_same_and_not_compiled_again(tmp_path: Path) -> None:
    plain, compiled, _ = ask(tmp_path, "plain")
    assert compiled > 5
    first, compiled, made = ask(tmp_path, "served")
    assert (first, made) == (plain, True)
    assert compiled > 5
    again, compiled, made = ask(tmp_path, "served")
    assert (again, compiled, made) == (plain, 0, False)


def test_a_pattern_that_is_warned_of_is_compiled_each_time(apart: Generated) -> None:
    snapshot_generated.note_all()
    for _ in range(2):
        re.purge()
        with pytest.warns(FutureWarning, match="nested set"):
            re.compile("[[a]b")
        serve(COMPILER)
    assert ("[[a]b", 0) in apart.fresh_patterns


@pytest.mark.parametrize("flags", [re.DEBUG, re.LOCALE])
def test_unusual_patterns_are_not_noted(apart: Generated, flags: int) -> None:
    snapshot_generated.note_all()
    COMPILER.compile("a" if flags == re.DEBUG else b"a", flags)
    assert not apart.fresh_patterns


def test_every_pattern_of_the_standard_library_is_made_the_same(apart: Generated) -> None:
    snapshot_generated.note_all()
    texts = [r"(a)(?P<n>b)?(?=c)(?<!d)", "(?i:x)y", "[a-zäö]+?", r"\bfoo\b|(?>bar)++", "(?s).*", "^$", "\\Z"]
    plain = [COMPILER.compile(each) for each in texts]
    serve(COMPILER)
    apart.fresh_patterns.clear()
    assert [COMPILER.compile(each) for each in texts] == plain
    assert not apart.fresh_patterns


def test_a_module_that_executes_with_no_globals_uses_its_own(apart: Generated) -> None:
    snapshot_generated.note_all()
    for _ in range(2):
        own: dict[str, Any] = {}
        CLASSES.exec("found = __name__", None, own)
        assert own["found"] == __name__
        own.clear()
        CLASSES.exec("found = 1", own)
        assert own["found"] == 1
        serve(dataclasses)


def test_errors_in_the_text_are_those_of_the_compiler(apart: Generated) -> None:
    snapshot_generated.note_all()
    with pytest.raises(SyntaxError):
        CLASSES.exec("def (", {}, {})
    assert lacking() == 0


def test_what_was_damaged_is_compiled(apart: Generated) -> None:
    executed(dataclasses, lambda _: b"", (part(7, b"x"), NOTHING))
    made = dataclasses.make_dataclass("Made", ["a"])
    assert repr(made(1)).endswith("Made(a=1)")
    assert apart.fresh["exec"]


def test_afterwards_all_is_as_python_has_it(apart: Generated) -> None:
    before = COMPILER.compile
    snapshot_generated.note_all()
    assert COMPILER.compile is not before
    snapshot_generated.withdraw()
    assert COMPILER.compile is before
    assert "exec" not in vars(dataclasses)


def test_patterns_of_a_process_with_warnings_as_errors(apart: Generated) -> None:
    snapshot_generated.note_all()
    COMPILER.compile("a||b--c")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert packed(lambda _: b"", (NOTHING, NOTHING))[1] == b""
