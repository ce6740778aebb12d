"""Bytecode: made from the tree that is shipped, with the lines of the original, the same wherever it is made."""

import marshal
import os
import sys
import types
from pathlib import Path

import pytest

from build.cache import Cache
from build.canonical import canonical
from build.compile import compile_code
from build.errors import BuildError
from build.interpreters import SUPPORTED, Interpreter, find_interpreters
from build.minify.passes import PASSES
from build.minify.stage import shorten
from build.tree import File, Tree
from tests.boot import bed

TEXT = b'''\
"""Docstring."""

import os

KINDS = {"a", "b", "c", "d"}


def choose(kind: str, *, number: int = 3) -> object:
    """Another."""

    return kind in {"one", "two", "three"} and (
        number
        + len(os.sep)
    )
'''


@pytest.fixture(scope="module")
def here() -> tuple[Interpreter, ...]:
    return find_interpreters([])


def module(path: str, text: bytes, passes: bool = False) -> File:
    name = path.removesuffix(".py").replace("/", ".")
    if not passes:
        return File(path, text, "dist", name, False, text)
    outcome = shorten(text, tuple(PASSES))
    return File(path, outcome.data, "dist", name, False, text, outcome.passes)


def code_of(tree: Tree, interpreters: tuple[Interpreter, ...], folder: Path) -> dict[str, bytes]:
    (section,) = compile_code(tree, interpreters, Cache(folder))
    return dict(section.codes)


def test_it_is_the_shipped_tree_with_the_original_s_positions(tmp_path: Path, here: tuple[Interpreter, ...]) -> None:
    file = module("pack/part.py", TEXT, passes=True)
    code: types.CodeType = marshal.loads(code_of(Tree.of([file]), here, tmp_path)["pack.part"])
    assert code.co_filename == "pack/part.py"
    namespace: dict[str, object] = {}
    exec(code, namespace)
    function = namespace["choose"]
    assert isinstance(function, types.FunctionType)
    assert function.__doc__ is None
    assert "__doc__" not in namespace
    plain: dict[str, object] = {}
    exec(compile(TEXT, "pack/part.py", "exec"), plain)
    original = plain["choose"]
    assert isinstance(original, types.FunctionType)
    assert function.__code__.co_code == original.__code__.co_code
    assert function.__code__.co_firstlineno == 8
    assert list(function.__code__.co_positions()) == list(original.__code__.co_positions())


def test_a_second_build_compiles_nothing(
    tmp_path: Path, here: tuple[Interpreter, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = code_of(Tree.of([module("a.py", TEXT), module("b.py", b"x = 1\n")]), here, tmp_path)
    asked: list[str] = []

    def compile_none(files: list[File], _: Interpreter) -> list[tuple[bytes, str]]:
        asked.extend(file.path for file in files)
        return []

    monkeypatch.setattr("build.compile._compile", compile_none)
    assert code_of(Tree.of([module("a.py", TEXT), module("b.py", b"x = 1\n")]), here, tmp_path) == first
    assert asked == []


def test_one_changed_module_gives_the_bytes_of_a_full_build(tmp_path: Path, here: tuple[Interpreter, ...]) -> None:
    """What else the process compiled, and in which order, leaves no trace in the marshalled code."""
    others = [module(f"m{i}.py", TEXT.replace(b"choose", f"choose_{i}".encode())) for i in range(5)]
    full = code_of(Tree.of([module("a.py", TEXT), *others]), here, tmp_path / "one")
    alone = code_of(Tree.of([module("a.py", TEXT)]), here, tmp_path / "two")
    assert full["a"] == alone["a"]


def test_damaged_entries_of_the_cache_are_made_anew(tmp_path: Path, here: tuple[Interpreter, ...]) -> None:
    tree = Tree.of([module("a.py", TEXT)])
    first = code_of(tree, here, tmp_path)
    (entry,) = (path for path in tmp_path.rglob("*") if path.is_file())
    data = bytearray(entry.read_bytes())
    data[-1] ^= 1
    entry.write_bytes(data)
    assert code_of(tree, here, tmp_path) == first
    entry.write_bytes(b"")
    assert code_of(tree, here, tmp_path) == first


def test_a_module_that_does_not_compile_is_named(tmp_path: Path, here: tuple[Interpreter, ...]) -> None:
    with pytest.raises(BuildError, match=r"does not compile pack/bad\.py of dist: SyntaxError"):
        code_of(Tree.of([module("pack/bad.py", b"return 1\n")]), here, tmp_path)


def test_interpreters_are_found_by_version_and_by_path() -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    (here,) = find_interpreters([version, sys.executable])
    assert (here.executable, here.version) == (sys.executable, version)
    with pytest.raises(BuildError, match="does not start"):
        find_interpreters(["/no/such/python"])
    with pytest.raises(BuildError, match=r"is no Python 3\.11 or newer"):
        find_interpreters(["/bin/echo"])


def test_other_versions_are_asked_of_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\ntest "$4" = 3.99 && echo {sys.executable} || exit 2\n')
    uv.chmod(0o755)
    monkeypatch.setenv("UV", str(uv))
    assert find_interpreters(["3.99"])[0].executable == sys.executable
    with pytest.raises(BuildError, match=r"there is no Python 3\.98 here"):
        find_interpreters(["3.98"])


def test_versions_that_uv_does_not_know_are_looked_for_on_path_and_under_pyenv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\nexit 2\n")
    for place in ("versions/3.97.3/bin", "versions/3.97.12/bin", "versions/3.97-dev/bin"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "python3").symlink_to(sys.executable)
    (tmp_path / "python3.96").symlink_to(sys.executable)
    (tmp_path / "python3.97").write_text("#!/bin/sh\nexit 127\n")  # as a shim of pyenv's
    for each in (uv, tmp_path / "python3.97"):
        each.chmod(0o755)
    monkeypatch.setenv("UV", str(uv))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert find_interpreters(["3.96"])[0].executable == str(tmp_path / "python3.96")
    assert find_interpreters(["3.97"])[0].executable == str(tmp_path / "versions/3.97.12/bin/python3")


def test_all_stands_for_every_supported_version() -> None:
    missing = [version for version in SUPPORTED if bed.python(version) is None]
    if missing:
        pytest.skip(f"no Python {missing[0]} here")
    found = find_interpreters(["all"])
    assert tuple(each.version for each in found) == SUPPORTED


def test_an_old_interpreter_is_refused() -> None:
    old = bed.python("3.10") or bed.python("3.9")
    if old is None:
        pytest.skip("no old Python here")
    with pytest.raises(BuildError, match=r"3\.11 or newer"):
        find_interpreters([old])


SAMPLES = [
    compile(TEXT, "a.py", "exec"),
    compile("x = 1.5, -0.0, 2j, 10**30, -(2**70), b'bytes', 'é' * 2, ..., None, True, 1e400 - 1e400", "b.py", "exec"),
    compile(
        "def f():\n    def g(a, *b, c=1, **d):\n        nonlocal x\n        x = a\n    x = 1\n    return g", "c", "exec"
    ),
    compile("class A[T]: pass" if sys.version_info >= (3, 12) else "class A: pass", "d", "exec"),
]


@pytest.mark.parametrize("code", SAMPLES)
def test_the_canonical_spelling_is_the_same_code(code: types.CodeType) -> None:
    spelled = canonical(marshal.dumps(code))
    assert canonical(spelled) == spelled
    assert canonical(marshal.dumps(marshal.loads(spelled))) == spelled
    held = list(code.co_consts)  # references that mark objects as shared
    again = marshal.loads(marshal.dumps(code))
    assert canonical(marshal.dumps(code)) == spelled, held
    assert again.co_code == code.co_code
    assert len(spelled) <= len(marshal.dumps(code))


def test_a_stream_that_is_not_understood_is_refused() -> None:
    whole = marshal.dumps(SAMPLES[0])
    for broken in (whole[:-1], whole + b"N", b"?", b"r\x07\x00\x00\x00", b""):
        with pytest.raises(ValueError, match=r"marshalled|reference"):
            canonical(broken)
