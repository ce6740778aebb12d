"""Slices of the minifier's proofs: code that nobody here wrote, run from its minified self."""

import json
import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

from build.minify import Policy, minify
from build.tree import File, Tree
from tools.prove_minify_packages import SUITES, Suite, _locked, outcomes, shrink
from tools.stdlib_tests import run

ROOT = Path(__file__).parent.parent.parent


def minified_copy(folder: Path, paths: dict[str, Path], policy: Policy, cache: Path) -> int:
    """Lays minified modules, by their place in the folder; how many."""
    files = []
    for place, path in paths.items():
        name = place.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        data = path.read_bytes()
        files.append(File(place, data, name.partition(".")[0], name, place.endswith("__init__.py"), data))
    tree, report = minify(Tree.of(files), policy, cache)
    assert not report.refused
    for file in tree:
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.data)
    return len(files)


def test_cpythons_tests_over_minified_modules(tmp_path: Path) -> None:
    if find_spec("test.test_textwrap") is None:
        pytest.skip("this Python was installed without its tests")
    library = Path(sysconfig.get_path("stdlib"))
    names = ["textwrap", "heapq", "bisect", "shlex", "string", "fnmatch", "csv", "statistics", "fractions", "cmd"]
    paths = {f"{name}.py": library / f"{name}.py" for name in names}
    paths |= {f"json/{path.name}": path for path in (library / "json").glob("*.py")}
    stripped = Policy(strip_docstrings=frozenset({*names, "json"}))
    minified_copy(tmp_path / "library", paths, stripped, tmp_path / "cache")
    chosen = ["textwrap", "heapq", "bisect", "shlex", "fnmatch", "csv", "fractions"]
    words = [f"test.test_{name}" for name in chosen]
    done = subprocess.run(
        [sys.executable, "-X", "frozen_modules=off", "-m", "unittest", *words],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "library")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Ran " in done.stderr


def test_a_test_module_is_judged_and_ended(tmp_path: Path) -> None:
    """The runner, on a prefix whose Python is a script that writes results as the regression tests do."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3.0"
    python.write_text(
        "#!/bin/sh\nfor word; do case $word in --junit-xml=*) out=${word#--junit-xml=};; esac; done\n"
        'if [ "$word" = test_slow ]; then sleep 60; fi\n'
        'echo \'<x><testcase name="a"/><testcase name="b"><skipped/></testcase>\' > $out\n'
        'if [ "$word" = test_bad ]; then echo \'<testcase name="c"><failure/></testcase>\' >> $out; fi\n'
        "echo '</x>' >> $out\necho SomeError: said\n"
        'if [ "$word" = test_bad ]; then exit 2; fi\n'
    )
    python.chmod(0o755)
    good = run(tmp_path, "test_good", tmp_path / "scratch", 30)
    assert (good.status, good.passed, good.skipped) == ("passed", 1, ["b"])
    bad = run(tmp_path, "test_bad", tmp_path / "scratch", 30)
    assert (bad.status, bad.bad, bad.said) == ("failed", ["c"], "status 2: SomeError: said")
    assert run(tmp_path, "test_slow", tmp_path / "scratch", 0.3).status == "late"
    assert not (tmp_path / "scratch").exists()


def test_pytest_runs_from_its_minified_self(tmp_path: Path) -> None:
    site = next(Path(place) for place in sys.path if (Path(place) / "_pytest").is_dir())
    paths = {
        path.relative_to(site).as_posix(): path
        for package in ("_pytest", "pytest", "pluggy", "iniconfig", "packaging")
        for path in (site / package).rglob("*.py")
    }
    assert minified_copy(tmp_path / "library", paths, Policy(), tmp_path / "cache") > 90
    (tmp_path / "test_small.py").write_text(
        "import pytest, pluggy, packaging.version\n"
        "@pytest.fixture(params=[1, 2])\ndef number(request): return request.param\n"
        "@pytest.mark.parametrize('more', [0, 1])\n"
        "def test_passes(number, more, tmp_path, capsys, monkeypatch):\n"
        "    print('said'); assert capsys.readouterr().out == 'said\\n'\n"
        "    assert all('library' in m.__file__ for m in (pytest, pluggy, packaging.version))\n"
        "def test_fails(number):\n    values = [number, 2]\n    assert values == [1, 3]\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "test_small.py"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "library"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "2 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    assert "assert [1, 2] == [1, 3]" in done.stdout
    assert "At index 1 diff: 2 != 3" in done.stdout


def test_the_suites_of_packages_are_compared(tmp_path: Path) -> None:
    """The tool's own parts, on a package made here; the real ones come over the network."""
    for name in ("plain", "small"):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "tests").mkdir()
        (tmp_path / name / "src" / "mine.py").write_text("def double(x):\n    'not read'\n    return 2 * x  # twice\n")
        (tmp_path / name / "tests" / "test_mine.py").write_text(
            "import mine\ndef test_it(): assert mine.double(2) == 4\ndef test_doc(): assert mine.double.__doc__\n"
        )

    class Here:
        python = Path(sys.executable)

    suite = Suite("src", "tests")
    sizes = shrink(tmp_path / "small", suite, "mine", tmp_path / "cache")
    assert sizes["docstrings"] == "removed"
    before = outcomes(Here(), tmp_path / "plain", suite)  # type: ignore[arg-type]  # all that is asked of it
    after = outcomes(Here(), tmp_path / "small", suite)  # type: ignore[arg-type]  # as above
    assert before == {"tests.test_mine::test_it": "passed", "tests.test_mine::test_doc": "passed"}
    assert after == {"tests.test_mine::test_it": "passed", "tests.test_mine::test_doc": "failed"}
    assert all("--hash=sha256:" in _locked(name) for name in SUITES)


@pytest.mark.timeout(300)
def test_fsdp2_from_its_minified_self_has_the_same_losses() -> None:
    words = [sys.executable, "-m", "tools.prove_minify_fsdp", "--updates", "2", "--no-json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "losses and weights {'losses': True, 'weights': True}" in done.stdout


def test_each_pass_gains(tmp_path: Path) -> None:
    from tools.prove_minify_passes import measured

    found = measured([(ROOT / "build" / "reach.py").read_bytes()], True)
    assert found["passes"]["docstrings"]["gain"][0] > 100
    assert found["passes"]["docstrings"]["gain"][1] > 0
    assert found["minified"][0] < found["original"][0]
    assert json.dumps(found["not_taken"])
