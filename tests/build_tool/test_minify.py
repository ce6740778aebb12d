"""Minified programs do what the programs did, and what could not be shown safe is left alone."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import python_minifier

from build.errors import BuildError
from build.minify import Policy, read_policy
from build.minify.stage import shorten
from build.minify.transform import PRINT, transform
from build.tree import File
from tests.build_tool.minify_bed import DATA, ROOT, interpreters, minified, module, output

ALL = Policy().passes


def sources(name: str) -> dict[str, bytes]:
    """The program's files by path, as bytes on disk: some are written in another encoding than they are kept in."""
    data = (DATA / f"{name}.py").read_bytes()
    if name == "bodies":
        data = data.decode().encode("latin-1")
    if name == "windows":
        data = data.decode().replace("\n", "\r\n").encode("utf-8-sig")
    files = {f"{name}.py": data}
    if name == "annotations":
        files["shapes.py"] = (DATA / "shapes.py").read_bytes()
    return files


@pytest.mark.parametrize("name", ["annotations", "docstrings", "fstrings", "bodies", "windows"])
def test_a_minified_program_prints_the_same_under_every_python(name: str, tmp_path: Path) -> None:
    files = sources(name)
    made, report = minified([module(path, data, path) for path, data in files.items()], tmp_path / "cache")
    assert not report.refused
    plain, small = tmp_path / "plain", tmp_path / "small"
    for path, data in files.items():
        for folder, content in ((plain, data), (small, made[path].data)):
            folder.mkdir(exist_ok=True)
            (folder / path).write_bytes(content)
        assert len(made[path].data) < len(data)
    expected = output(sys.executable, plain, f"{name}.py")
    assert expected
    for python in interpreters():
        assert output(python, small, f"{name}.py") == output(python, plain, f"{name}.py")
    assert output(sys.executable, small, f"{name}.py") == expected


@pytest.mark.parametrize("python", [python for python in interpreters() if python != sys.executable])
def test_a_newer_python_writes_the_same_bytes(python: str) -> None:
    """In particular f-strings that the oldest target reads."""
    printer = Path(python_minifier.__file__).parents[1]
    script = (
        f"import sys; sys.path.extend([{str(ROOT)!r}, {str(printer)!r}])\n"
        "from build.minify.stage import shorten\n"
        f"sys.stdout.buffer.write(shorten(open({str(DATA / 'fstrings.py')!r}, 'rb').read(), {ALL!r}).data)"
    )
    done = subprocess.run([python, "-c", script], capture_output=True, check=True)
    assert done.stdout == shorten((DATA / "fstrings.py").read_bytes(), ALL).data


def test_a_slice_of_the_standard_library_survives() -> None:
    library = Path(os.__file__).parent
    paths = [path for path in sorted(library.rglob("*.py")) if not {"site-packages", "test", "tests"} & {*path.parts}]
    small = [path for path in paths if 2_000 < path.stat().st_size < 30_000]
    chosen = small[:: len(small) // 40][:40]
    assert len(chosen) == 40
    for path in chosen:
        original = path.read_bytes()
        outcome = shorten(original, ALL)
        assert outcome.refused is None, path
        assert len(outcome.data) < len(original)
        compile(outcome.data, str(path), "exec")
        # the comparison of the standard library, not our own
        assert ast.dump(ast.parse(outcome.data)) == ast.dump(transform(original, outcome.passes)), path


def test_no_name_that_others_see_changes() -> None:
    text = "class Visible:\n def method(self, argument, *, option=1):\n  local_name = argument\n  return local_name\n"
    names = {node.id for node in ast.walk(ast.parse(shorten(text.encode(), ALL).data)) if isinstance(node, ast.Name)}
    assert names == {"argument", "local_name"}
    assert b"def method(self,argument,*,option=1)" in shorten(text.encode(), ALL).data


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = " + " + ".join(["y"] * 20_000) + "\n", "nests too deep"),
        ("x = a" + ".b()" * 5_000 + "\n", "nests too deep"),
        ("print 'an older Python'\n", "does not parse"),
        ("{{ a_template }}: {% for %}\n", "does not parse"),
    ],
)
def test_what_cannot_be_done_is_shipped_as_it_was(text: str, reason: str, tmp_path: Path) -> None:
    made, report = minified([module("odd.py", text), module("even.py", "x = 1  # one\n")], tmp_path)
    assert made["odd.py"].data == text.encode()
    assert made["odd.py"].passes == ()
    assert made["even.py"].data == b"x=1\n"
    assert [refusal.path for refusal in report.refused] == ["odd.py"]
    assert reason in report.refused[0].reason
    assert "odd.py" in report.table()


def test_nesting_is_judged_on_a_stack_of_its_own() -> None:
    text = ("x = " + " + ".join(["y"] * 800) + "\n").encode()

    def deep(levels: int) -> bytes:
        return deep(levels - 1) if levels else shorten(text, ALL).data

    assert deep(500) == deep(0) != text


def test_a_long_elif_chain_is_minified() -> None:
    text = "if a:\n    b\n" + "".join(f"elif a == {value}:\n    'text'\n    b\n" for value in range(600))
    outcome = shorten(text.encode(), ALL)
    assert outcome.refused is None
    assert b"text" not in outcome.data


def test_data_is_never_touched(tmp_path: Path) -> None:
    template = File("example/templates/page.py", b"# kept\nx = 1  # too\n", "example")
    made, report = minified([template, module("example/__init__.py", "x = 1  # gone\n")], tmp_path)
    assert made[template.path] == template
    assert report.rows[0].modules == 1


def test_a_package_that_reads_docstrings_keeps_all_of_its_own(tmp_path: Path) -> None:
    reader = module("reads/__init__.py", "from . import a\nprint(a.f.__doc__)\n", "reads")
    read = module("reads/a.py", "def f():\n    'kept'\n", "reads")
    other = module("other.py", "def f():\n    'removed'\n    # it would not read its own __doc__\n", "other")
    made, report = minified([reader, read, other], tmp_path)
    assert made["reads/a.py"].data == b"def f():'kept'\n"
    assert made["other.py"].data == b"def f():pass\n"
    assert {row.package: row.docstrings for row in report.rows} == {
        "other": "removed",
        "reads": "kept: reads/__init__.py, line 2: __doc__",
    }


@pytest.mark.parametrize(
    "text",
    [
        "help(getattr(f, '__doc__'))",
        "import docopt",
        "import ply.yacc",
        "from click import command",
        "import inspect\ninspect.getdoc(f)",
        "from inspect import getdoc as read",
        "import doctest",
        "WRAPPED = ('__name__', '__doc__')",
        "class A:\n    __doc__ = 'text'",
    ],
)
def test_many_spellings_count_as_reading_docstrings(text: str, tmp_path: Path) -> None:
    made, _ = minified([module("p/a.py", text), module("p/b.py", "def f():\n    'kept'\n    return 1\n")], tmp_path)
    assert b"kept" in made["p/b.py"].data


def test_packages_and_modules_can_be_left_out(tmp_path: Path) -> None:
    text = "def f():\n    'text'\n    return 1  # one\n"
    files = [module("a/__init__.py", text), module("a/b.py", text), module("ab.py", text), module("c.py", text)]
    policy = Policy(exclude=frozenset({"a.b"}), keep_docstrings=frozenset({"c"}))
    made, _ = minified(files, tmp_path, policy)
    assert made["a/b.py"].data == text.encode()
    assert made["a/b.py"].passes == ()
    assert made["a/__init__.py"].data == made["ab.py"].data == b"def f():return 1\n"
    assert made["c.py"].data == b"def f():'text';return 1\n"


def test_a_distribution_goes_by_any_spelling_of_its_name(tmp_path: Path) -> None:
    text = "x = 1  # one\n"
    files = [module("a.py", text, "some-thing"), module("b.py", text, "other")]
    made, report = minified(files, tmp_path, Policy(exclude=frozenset({"Some.Thing"})))
    assert made["a.py"].data == text.encode()
    assert made["b.py"].data == b"x=1\n"
    assert [row.docstrings for row in report.rows] == ["removed", "kept: excluded"]


def test_docstrings_go_on_request_but_for_the_modules_that_keep_them(tmp_path: Path) -> None:
    text = "class A:\n 'text'\n x = 1\n"
    files = [module("p/reads.py", "print(A.__doc__)", "p"), module("p/a.py", text, "p"), module("p/b.py", text, "p")]
    policy = Policy(strip_docstrings=frozenset({"p"}), keep_docstrings=frozenset({"p.b"}))
    made, report = minified(files, tmp_path, policy)
    assert made["p/a.py"].data == b"class A:x=1\n"
    assert made["p/b.py"].data == b"class A:'text';x=1\n"
    assert report.rows[0].docstrings == "removed, kept in 1 modules"


def test_annotations_go_on_request_only(tmp_path: Path) -> None:
    text = "def f(a: int) -> str:\n  b: int = a\n  return b\nclass A:\n  c: int\n"
    files = [module("p/a.py", text, "p"), module("q.py", text, "q")]
    made, _ = minified(files, tmp_path, Policy(strip_annotations=frozenset({"p.a"})))
    assert made["p/a.py"].data == b"def f(a):b:int=a;return b\nclass A:c:int\n"
    assert made["p/a.py"].passes == ("signatures", PRINT)
    assert made["q.py"].data == b"def f(a:int)->str:b:int=a;return b\nclass A:c:int\n"


def test_the_policy_comes_from_pyproject(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[project]\nname = 'x'\n")
    assert read_policy(path) == Policy()
    path.write_text("[tool.trainer-build]\nminify-exclude = ['a']\nkeep-docstrings = ['b', 'c.d']\n")
    assert read_policy(path) == Policy(exclude=frozenset({"a"}), keep_docstrings=frozenset({"b", "c.d"}))
    path.write_text("[tool.trainer-build]\nstrip-docstrings = ['b']\n")
    assert read_policy(path) == Policy(strip_docstrings=frozenset({"b"}))
    for line in ("keep-docstrings = 'b'", "keep-docstring = ['b']"):
        path.write_text(f"[tool.trainer-build]\n{line}\n")
        with pytest.raises(BuildError, match="keep-docstring"):
            read_policy(path)


def test_a_second_build_looks_up_what_did_not_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [module("a.py", "x = 1  # one\n"), module("b.py", "print 'no'\n")]
    first = minified(files, tmp_path)
    monkeypatch.setattr("build.minify.stage.shorten", lambda original, passes: pytest.fail("minified again"))
    assert minified(files, tmp_path) == first
    with pytest.raises(pytest.fail.Exception):
        minified([module("a.py", "x = 2  # one\n")], tmp_path)


def test_the_table_sums_up(tmp_path: Path) -> None:
    _, report = minified([module("a.py", "x = 1  # one\n", "p"), module("b.py", "y = 1\n", "q")], tmp_path)
    header, *rows = (line.split() for line in report.table().splitlines())
    assert header[:4] == ["package", "modules", "bytes", "minified"]
    assert rows[0][:5] == ["p", "1", "13", "4", "31%"]
    assert rows[-1][:4] == ["total", "2", "19", "8"]


def test_bytecode_can_keep_the_lines_of_the_original() -> None:
    text = b'"""doc"""\nimport os\n\n\ndef f():\n    """doc"""\n\n    return os.nothing\n'
    outcome = shorten(text, ALL)
    assert outcome.passes == ("docstrings", PRINT)
    tree = transform(text, outcome.passes)
    assert ast.dump(tree) == ast.dump(ast.parse(outcome.data))
    function = tree.body[1]
    assert isinstance(function, ast.FunctionDef)
    assert (function.lineno, function.body[0].lineno) == (5, 8)


@pytest.mark.parametrize("python", interpreters())
def test_the_passes_need_only_the_standard_library(python: str) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from build.minify.transform import transform\n"
        "code = compile(transform(b'def f():\\n \"doc\"\\n return f.__doc__', ('docstrings', 'print')), 'x', 'exec')\n"
        "exec(code); print(f(), 'python_minifier' in sys.modules)"
    )
    done = subprocess.run([python, "-I", "-S", "-c", script], capture_output=True, text=True)
    assert done.stdout == "None False\n", done.stderr
