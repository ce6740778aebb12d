"""What `import` gets from an archive: which modules, whose copy, from which bytes."""

from pathlib import Path

import pytest

from tests.boot import bed

PLUGINS: bed.Files = {
    "plug/__init__.py": "",
    "plug/kinds/__init__.py": """
        import importlib, pkgutil
        def available():
            return sorted(module.name for module in pkgutil.iter_modules(__path__))
        def load(name):
            return importlib.import_module(f"{__name__}.{name}").build()
    """,
    "plug/kinds/adamw.py": "def build(): return 'adamw'",
    "plug/kinds/extra/__init__.py": "def build(): return 'extra'",
    "plug/kinds/extra/deeper.py": "",
    "plug/kinds/data/table.py": "",
    "app.py": """
        import importlib.util, pkgutil, plug
        from plug import kinds
        print(kinds.available(), [module.name for module in pkgutil.iter_modules(kinds.__path__) if module.ispkg])
        print([module.name for module in pkgutil.walk_packages(plug.__path__, "plug.")])
        print([kinds.load(name) for name in kinds.available()])
        print([bool(importlib.util.find_spec("plug.kinds." + name)) for name in ("adamw", "nope")])
        print(sorted(module.name for module in pkgutil.iter_modules() if module.name in ("plug", "app", "kinds")))
    """,
}


def test_discovery_sees_every_module(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", PLUGINS, data=["plug/kinds/data/table.py"])
    assert bed.lines(bed.run(place)) == [
        "['adamw', 'extra'] ['extra']",
        "['plug.kinds', 'plug.kinds.adamw', 'plug.kinds.extra', 'plug.kinds.extra.deeper']",
        "['adamw', 'extra']",
        "[True, False]",
        "['app', 'plug']",
    ]


DOUBLE: bed.Files = {
    "double/__init__.py": "__version__ = '2.0'\nfrom .newpart import new",
    "double/newpart.py": "def new(): return 'new'",
    "uuid.py": "def uuid1(): return 'a backport'",
    "app.py": """
        import importlib.util, sys, uuid, double, double.newpart
        print(double.__version__, double.new(), importlib.util.find_spec("double.oldpart"))
        print(hasattr(uuid, "UUID"), len(str(uuid.uuid4())))
    """,
}
BUNDLED_WINS = ["2.0 new None", "True 36"]


def other_copy(folder: Path) -> Path:
    (folder / "double").mkdir(parents=True)
    (folder / "double" / "__init__.py").write_text("__version__ = '1.0'\n")
    (folder / "double" / "oldpart.py").write_text("")
    (folder / "double" / "newpart.py").write_text("def new(): return 'old'\n")
    return folder


@pytest.mark.parametrize("place", ["PYTHONPATH", "current folder", "imported before"])
def test_the_bundled_copy_wins_but_not_over_the_standard_library(tmp_path: Path, place: str) -> None:
    other = other_copy(tmp_path / "other")
    environment = {} if place == "current folder" else {"PYTHONPATH": str(other)}
    if place == "imported before":
        (other / "sitecustomize.py").write_text("import double, double.newpart\n")
    built = bed.archive(tmp_path / "app.pyz", DOUBLE)
    assert bed.lines(bed.run(built, environment=environment, folder=other)) == BUNDLED_WINS


def test_which_copy_wins_under_a_python_without_code(tmp_path: Path) -> None:
    python = bed.other_python()
    if python is None:
        pytest.skip("only one Python here")
    environment = {"PYTHONPATH": str(other_copy(tmp_path / "other"))}
    built = bed.archive(tmp_path / "app.pyz", DOUBLE)
    assert bed.lines(bed.run(built, python=python, environment=environment)) == BUNDLED_WINS


def test_a_package_from_elsewhere_gets_no_bundled_part(tmp_path: Path) -> None:
    """A package that was put into sys.modules after the start stays in one piece."""
    files: bed.Files = {
        **DOUBLE,
        "app.py": """
            import sys, types
            double = sys.modules["double"] = types.ModuleType("double")
            double.__path__ = ["/nowhere"]
            try:
                import double.newpart
            except ModuleNotFoundError as error:
                print(error.name)
        """,
    }
    assert bed.lines(bed.run(bed.archive(tmp_path / "app.pyz", files))) == ["double.newpart"]


def test_namespace_packages_may_be_spread(tmp_path: Path) -> None:
    (tmp_path / "other" / "spread").mkdir(parents=True)
    (tmp_path / "other" / "spread" / "outside.py").write_text("WHERE = 'outside'\n")
    files: bed.Files = {
        "spread/inside.py": "WHERE = 'inside'",
        "spread/part/deep.py": "WHERE = 'deep'",
        "app.py": """
            import pkgutil, spread.inside, spread.outside, spread.part.deep
            print(spread.inside.WHERE, spread.outside.WHERE, spread.part.deep.WHERE, len(spread.__path__))
            print(sorted(module.name for module in pkgutil.iter_modules(spread.__path__)))
        """,
    }
    built = bed.archive(tmp_path / "app.pyz", files)
    done = bed.run(built, environment={"PYTHONPATH": str(tmp_path / "other")})
    assert bed.lines(done) == ["inside outside deep 2", "['inside', 'outside']"]


MODULES: bed.Files = {
    "pack/__init__.py": "",
    "pack/part.py": "def value():\n    return 42\n",
    "pack/many.py": "VALUE = sum(range(4))\n",
    "app.py": """
        import sys
        from importlib.resources import files  # the standard library's own imports are not watched
        import pkgutil, inspect, linecache, traceback
        seen = []
        def watch(event, arguments):
            if event in ("open", "os.listdir", "os.scandir", "compile") and "app.pyz" in str(arguments):
                seen.append((event, arguments))
        sys.addaudithook(watch)
        import pack.part, pack.many
        print(pack.part.value(), pack.many.VALUE, seen)
    """,
}


def test_imports_open_and_compile_nothing(tmp_path: Path) -> None:
    assert bed.lines(bed.run(bed.archive(tmp_path / "app.pyz", MODULES))) == ["42 6 []"]


COUNT_COMPILED = """
import os, runpy, sys
archive = os.path.abspath(sys.argv[1])
compiled = []
def watch(event, arguments):
    if event == "compile" and arguments[0] is not None and archive in str(arguments[1]):
        compiled.append(str(arguments[1]))
sys.addaudithook(watch)
sys.argv = [archive]
try:
    runpy.run_path(archive, run_name="__main__")
except SystemExit:
    pass
print(len(compiled))
"""


def test_nothing_is_compiled_at_all(tmp_path: Path) -> None:
    files: bed.Files = {**MODULES, "app.py": "import pack.part, pack.many\nprint(pack.part.value())"}
    built = bed.archive(tmp_path / "app.pyz", files)
    (tmp_path / "count.py").write_text(COUNT_COMPILED)
    assert bed.lines(bed.run([tmp_path / "count.py", built])) == ["42", "0"]


def test_another_python_compiles_the_same_text(tmp_path: Path) -> None:
    other = bed.other_python()
    if other is None:
        pytest.skip("only one Python here")
    files: bed.Files = {**MODULES, "app.py": "import pack.part, pack.many\nprint(pack.part.value())"}
    built = bed.archive(tmp_path / "app.pyz", files, minify=True)
    (tmp_path / "count.py").write_text(COUNT_COMPILED)
    value, compiled = bed.lines(bed.run([tmp_path / "count.py", built], python=other))
    assert value == "42"
    assert int(compiled) >= 4


def test_code_for_two_versions(tmp_path: Path) -> None:
    other = bed.other_python()
    if other is None:
        pytest.skip("only one Python here")
    from build.interpreters import find_interpreters

    files: bed.Files = {**MODULES, "app.py": "import pack.part, pack.many\nprint(pack.part.value())"}
    both = (*bed.running(), *find_interpreters([other]))
    built = bed.archive(tmp_path / "app.pyz", files, interpreters=both)
    (tmp_path / "count.py").write_text(COUNT_COMPILED)
    assert bed.lines(bed.run([tmp_path / "count.py", built])) == ["42", "0"]
    value, compiled = bed.lines(bed.run([tmp_path / "count.py", built], python=other))
    assert (value, int(compiled) <= 2) == ("42", True), "of __main__ there is one bytecode, for the first version"


def test_what_a_module_knows_of_itself(tmp_path: Path) -> None:
    files: bed.Files = {
        "pack/__init__.py": "",
        "pack/part.py": "class Thing: pass",
        "app.py": """
            import os, pickle, sys, pack, pack.part, trainer_boot.finder, __main__
            here = os.path.abspath(sys.argv[0])
            spec = pack.part.__spec__
            print(pack.part.__file__ == spec.origin == here + "/pack/part.py", pack.__path__ == [here + "/pack"])
            print(spec.has_location, spec.cached, spec.parent)
            print(spec.loader.is_package("pack"), spec.loader.is_package("pack.part"))
            print(spec.loader.get_filename("pack") == pack.__file__, hasattr(pack.part, "__cached__"))
            print(pack.part.Thing is pickle.loads(pickle.dumps(pack.part.Thing)))
            print(trainer_boot.finder.__spec__.origin == here + "/trainer_boot/finder.py", trainer_boot.__path__)
            print(__main__.__file__ == here, __main__.__spec__, here in sys.path)
            try:
                spec.loader.get_code("pack.no")
            except ImportError as error:
                print(error.name)
        """,
    }
    built = bed.archive(tmp_path / "app.pyz", files)
    assert bed.lines(bed.run([Path("app.pyz")], folder=tmp_path)) == [
        "True True",
        "True None pack",
        "True False",
        "True False",
        "True",
        f"True ['{built}/trainer_boot']",
        "True None False",
        "pack.no",
    ]


def test_the_entry_s_result_is_the_exit_status(tmp_path: Path) -> None:
    files: bed.Files = {"app.py": "import sys\ndef main():\n    print(sys.argv[0], sys.argv[1:])\n    return 7\n"}
    built = bed.archive(tmp_path / "app.pyz", files, "app:main")
    done = bed.run(built, "one", "--two")
    assert (done.returncode, done.stdout) == (7, f"{built} ['one', '--two']\n")
