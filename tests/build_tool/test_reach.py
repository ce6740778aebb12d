"""What can't be reached stays behind; whatever might be reached does not."""

import subprocess
import sys
from pathlib import Path

import pytest

from build.collect import collect
from build.errors import BuildError
from build.lock import read_lock
from build.reach import Reach, reach
from build.resolve import resolve
from build.tree import File, Tree
from tests.build_tool.minify_bed import ROOT, module

LIBRARY = {
    "lib/__init__.py": "",
    "lib/used.py": "",
    "lib/other.py": "",
    "lib/sub/__init__.py": "",
    "lib/sub/__main__.py": "",
    "lib/sub/deep.py": "",
}
ALL = frozenset(path.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for path in LIBRARY)


def reached(
    cache: Path, entry: str, library: dict[str, str] | None = None, keep: frozenset[str] = frozenset()
) -> tuple[set[str], Reach]:
    """The library's modules that an application of one module reaches, and the report."""
    files = [module(path, text, "lib") for path, text in {**LIBRARY, **(library or {})}.items()]
    tree, found = reach(Tree.of([module("app.py", entry, "app"), *files]), ("app",), keep, cache)
    return {file.module or "" for file in tree.modules() if file.package == "lib"}, found


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("import lib", {"lib"}),
        ("import lib.used", {"lib", "lib.used"}),
        ("def f():\n from lib import used, NAME", {"lib", "lib.used"}),
        ("from lib.sub import deep", {"lib", "lib.sub", "lib.sub.__main__", "lib.sub.deep"}),
        ("TARGET = 'lib.used:function'", {"lib", "lib.used"}),
        ("PROGRAM = 'import sys; from lib.used import x'", {"lib", "lib.used"}),
        ("PLACE = 'lib/sub/deep.py'", {"lib", "lib.sub", "lib.sub.deep"}),
        ("COMMAND = ['-m', 'lib.sub']", {"lib", "lib.sub", "lib.sub.__main__"}),
        ("import importlib\ndef f(n): importlib.import_module(f'lib.sub.{n}')", ALL - {"lib.used", "lib.other"}),
        ("import importlib\ndef f(n): importlib.import_module('lib.sub.' + n)", ALL - {"lib.used", "lib.other"}),
        ("import importlib\ndef f(n): importlib.import_module('lib.sub.%s' % n)", ALL - {"lib.used", "lib.other"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING: import lib.used\nimport lib", {"lib"}),
        ("'''Like lib.used, but better.'''\nimport lib", {"lib"}),
        ("import lib\nlib.other_thing('other')", {"lib"}),
    ],
)
def test_what_the_entry_names_stays(entry: str, expected: set[str], tmp_path: Path) -> None:
    assert reached(tmp_path, entry)[0] == expected


@pytest.mark.parametrize(
    ("path", "text", "more"),
    [
        ("lib/__init__.py", "from . import used", {"lib.used"}),
        ("lib/__init__.py", "from .sub.deep import x", {"lib.sub", "lib.sub.deep"}),
        ("lib/__init__.py", "__all__ = ['used']", {"lib.used"}),
        ("lib/__init__.py", "LAZY = {'thing': 'used'}\ndef __getattr__(name): ...", {"lib.used"}),
        ("lib/__init__.py", "LAZY = {'thing': '.sub.deep'}", {"lib.sub", "lib.sub.deep"}),
        ("lib/__init__.py", "print('used up')", set()),
    ],
)
def test_relative_names_count_from_their_package(path: str, text: str, more: set[str], tmp_path: Path) -> None:
    assert reached(tmp_path, "import lib", {path: text})[0] == {"lib"} | more


@pytest.mark.parametrize(
    "text",
    [
        "from importlib import import_module\ndef load(name): return import_module(name)",
        "import importlib\nload = importlib.import_module",
        "from importlib import import_module as load\ndef f(name): return load(name)",
        "import importlib\nload = getattr(importlib, 'import_module')",
        "import runpy\ndef f(path): runpy.run_path(path)",
        "def load(name): return __import__(name)",
        "import pkgutil\nfor each in pkgutil.iter_modules(__path__): pass",
        "from importlib import import_module\ndef load(name): return import_module(f'{__name__}.{name}')",
        "from importlib import import_module\ndef load(name): return import_module('.' + name, __package__)",
        "print 'an older Python'",
    ],
)
def test_a_distribution_that_computes_names_stays_whole(text: str, tmp_path: Path) -> None:
    left, found = reached(tmp_path, "import lib", {"lib/__init__.py": text})
    assert left == ALL
    assert "lib/__init__.py" in found.whole["lib"]


def test_entry_points_of_any_group_are_entries(tmp_path: Path) -> None:
    points = File("lib-1.dist-info/entry_points.txt", b"[some.plugins]\none = lib.sub.deep:Class [more]\n", "lib")
    files = [module(path, text, "lib") for path, text in LIBRARY.items()]
    tree, _ = reach(Tree.of([module("app.py", "", "app"), points, *files]), ("app",), frozenset(), tmp_path)
    assert "lib.sub.deep" in {file.module for file in tree.modules()}


def test_what_is_to_be_kept_is_kept_with_all_below(tmp_path: Path) -> None:
    assert reached(tmp_path, "", keep=frozenset({"lib.sub"}))[0] == ALL - {"lib.used", "lib.other"}
    assert reached(tmp_path, "", keep=frozenset({"lib.sub.deep"}))[0] >= {"lib", "lib.sub", "lib.sub.deep"}
    assert reached(tmp_path, "", keep=frozenset({"lib"}))[0] == ALL
    with pytest.raises(BuildError, match=r"'lib\.gone', which is not in the file"):
        reached(tmp_path, "", keep=frozenset({"lib.gone"}))


def test_data_stays_and_the_record_forgets_what_is_gone(tmp_path: Path) -> None:
    record = File("lib-1.dist-info/RECORD", b"lib/__init__.py,,\nlib/used.py,,\nlib/table.txt,sha256=x,1\n", "lib")
    files = [module(path, text, "lib") for path, text in LIBRARY.items()]
    data = File("lib/table.txt", b"1", "lib")
    tree, found = reach(
        Tree.of([module("app.py", "import lib", "app"), record, data, *files]), ("app",), frozenset(), tmp_path
    )
    kept = {file.path: file.data for file in tree}
    assert kept["lib-1.dist-info/RECORD"] == b"lib/__init__.py,,\nlib/table.txt,sha256=x,1\n"
    assert kept["lib/table.txt"] == b"1"
    assert found.names() == {"lib": sorted(ALL - {"lib"})}
    assert "left out of lib: lib.other" in found.table()


def test_an_unchanged_tree_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reached(tmp_path, "import lib")
    monkeypatch.setattr("build.reach.references", lambda *_: pytest.fail("searched again"))
    assert reached(tmp_path, "import lib") == first
    with pytest.raises(pytest.fail.Exception):
        reached(tmp_path, "import lib.used")


def test_what_the_environment_imports_of_ours_is_served(tmp_path: Path) -> None:
    """Packages that our extras bring import bundled distributions: their modules must be in the file."""
    from build.__main__ import ENTRIES
    from build.references import references
    from build.settings import read_settings

    whole = collect(resolve(read_lock(ROOT / "uv.lock")), ROOT, ROOT / ".cache" / "build")
    modules = {file.module or "" for file in whole.modules()}
    tree, found = reach(whole, ENTRIES, read_settings(ROOT / "pyproject.toml")["keep"], tmp_path)
    assert found.left_out
    served = {file.module for file in tree.modules()}
    site = next(Path(place) for place in sys.path if place.endswith("site-packages"))
    for package in ("huggingface_hub", "tensorboard", "tokenizers"):
        for path in sorted((site / package).rglob("*.py")):
            if b"tqdm" in path.read_bytes() or b"packaging" in path.read_bytes():
                file = module("x/" + path.name, path.read_bytes(), package)
                assert references(file, modules).names <= served, path


def test_every_shipped_module_of_a_dependency_can_be_imported(tmp_path: Path) -> None:
    """With nothing else of its distribution on the path."""
    from build.__main__ import ENTRIES

    whole = collect(resolve(read_lock(ROOT / "uv.lock")), ROOT, ROOT / ".cache" / "build")
    tree, _ = reach(whole, ENTRIES, frozenset(), tmp_path / "cache")
    names = []
    for file in tree:
        if file.package != "trainer-pyz":
            path = tmp_path / "site" / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
            if file.module and not file.module.endswith("__main__"):
                names.append(file.module)
    script = (
        f"import importlib, sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        f"for name in {names!r}: importlib.import_module(name)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
