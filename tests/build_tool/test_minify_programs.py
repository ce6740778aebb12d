"""Programs that nobody wrote, and programs that somebody wrote to break minifiers, do the same minified."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import python_minifier
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from build.cache import Cache
from build.compile import compile_code
from build.interpreters import find_interpreters
from build.minify import Policy, minify
from build.minify.passes import PASSES
from build.minify.stage import shorten
from build.tree import Tree
from tests.build_tool.minify_bed import DATA, ROOT, interpreters, minified, module, output
from tools.minified_programs import fault

ALL = tuple(PASSES)


@pytest.mark.filterwarnings("ignore")  # coroutines that are never awaited
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(st.randoms(use_true_random=False))
def test_generated_programs(random: Random) -> None:
    from tools.program_grammar import program

    text = program(random)
    try:
        compile(text, "program", "exec")
    except SyntaxError:
        return
    assert fault(text) is None


@pytest.mark.parametrize("python", [python for python in interpreters() if python != sys.executable])
def test_generated_programs_under_other_pythons(python: str) -> None:
    printer = str(Path(python_minifier.__file__).parents[1])
    words = [python, str(ROOT / "tools" / "minified_programs.py"), "20", "5000", printer]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"faults": {}' in done.stdout


def test_a_minifier_that_loses_a_bare_annotation_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a = 1\ndef f():\n  a: int\n  return a\nprint(f())\n"
    assert fault(text) is None

    def careless(source: bytes, passes: tuple[str, ...]) -> object:
        return shorten(source.replace(b"  a: int\n", b""), passes)

    monkeypatch.setattr("tools.minified_programs.shorten", careless)
    assert fault(text) == "prints something else"


@pytest.mark.parametrize("python", interpreters())
def test_what_nests_deeper_than_a_tree_may_is_compiled_as_it_was(python: str, tmp_path: Path) -> None:
    """Python compiles these texts; from syntax trees of that depth 3.11 and 3.12 do not."""
    texts = {
        "sums": "x = " + " + ".join(["1"] * 1500),
        "branches": "a = 0\nif a: 0\n" + "".join(f"elif a == {number}: 1\n" for number in range(2500)),
        "calls": "x = 'a'" + ".strip()" * 490,
        "signs": "x = " + "-" * 2500 + "1",
        "choices": "x = " + "1 if 0 else " * 1500 + "2",
    }
    texts = {name: f'"""doc"""\n{text}\n' for name, text in texts.items()}
    tree, report = minify(Tree.of([module(f"{name}.py", text) for name, text in texts.items()]), Policy(), tmp_path)
    assert {refusal.reason for refusal in report.refused} == {"nests too deep"}
    (section,) = compile_code(tree, find_interpreters([python]), Cache(tmp_path / "code"))
    assert all(code for _, code in section.codes)


@pytest.mark.parametrize(("name", "oldest"), [("traps", (3, 11)), ("traps_312", (3, 12)), ("traps_313", (3, 13))])
def test_programs_made_to_break_minifiers(name: str, oldest: tuple[int, int], tmp_path: Path) -> None:
    """Each under every Python that reads it; minified by that Python, and by ours where ours reads it too."""
    text = (DATA / f"{name}.py").read_bytes()
    printer = str(Path(python_minifier.__file__).parents[1])
    script = (
        f"import sys; sys.path.extend([{str(ROOT)!r}, {printer!r}])\n"
        "from build.minify.stage import shorten\n"
        f"made = shorten(open({str(DATA / name)!r} + '.py', 'rb').read(), {ALL!r})\n"
        "assert made.refused is None, made.refused\n"
        "sys.stdout.buffer.write(made.data)"
    )
    plain, small = tmp_path / "plain", tmp_path / "small"
    for folder in (plain, small):
        folder.mkdir()
    (plain / "program.py").write_bytes(text)
    ran = 0
    for python in interpreters():
        asked = [python, "-c", f"import sys; print(sys.version_info >= {oldest!r})"]
        if subprocess.run(asked, capture_output=True, text=True).stdout.strip() != "True":
            continue
        made = subprocess.run([python, "-c", script], capture_output=True)
        assert made.returncode == 0, made.stderr.decode()
        (small / "program.py").write_bytes(made.stdout)
        expected = output(python, plain, "program.py")
        assert expected
        assert output(python, small, "program.py") == expected
        ran += 1
    if not ran:
        pytest.skip(f"no Python {oldest[0]}.{oldest[1]} here")


def test_what_is_minified_already_stays(tmp_path: Path) -> None:
    for path in sorted(DATA.glob("*.py")):
        if path.stem in ("traps_312", "traps_313", "bodies"):
            continue
        once = shorten(path.read_bytes(), ALL)
        twice = shorten(once.data, ALL)
        assert twice.data == once.data, path
        assert twice.refused is None


def test_a_text_that_our_python_does_not_read_is_shipped_as_it_was(tmp_path: Path) -> None:
    made, report = minified([module("new.py", "template string t'{x}' of a later Python\n")], tmp_path)
    assert made["new.py"].passes == ()
    assert report.refused[0].reason.startswith("does not parse")
