"""What a package may ask of its importer has the same answers from an archive as from a folder."""

import sys
from pathlib import Path

import pytest

from tests.boot import bed

PACKAGE: bed.Files = {
    "pack/__init__.py": "import sys\nCOUNT = sys.modules.setdefault('counter', type(sys)('counter'))\n",
    "pack/part.py": '''
        """A part."""

        import warnings

        # a comment that the minifier drops

        class Thing:
            """A thing."""

            def method(self) -> int:
                return 1  # one


        def warn():
            """Warns its caller."""
            warnings.warn("careful", stacklevel=1)  # here


        def fail():
            raise ValueError("no")  # there
    ''',
    "pack/twice.py": "N = globals().get('N', 0) + 1\n",
    "pack/run.py": "import sys\nprint(__name__, __spec__.name, __file__ == sys.argv[0], __package__)\n",
    "pack/__main__.py": "print('main of', __package__)\n",
    "pack/broken.py": "import pack.part\nraise RuntimeError('half')\n",
    "pack/bare/deep.py": "WHERE = 'deep'\n",
    "pack/data/note.txt": b"a note\r\n",
    "pack/data/inner/blob.bin": b"\0\1",
}


def both(tmp_path: Path, files: bed.Files, minify: bool = False) -> list[str]:
    """What `app.py` prints from an archive; it must print the same from a folder."""
    folder = tmp_path / "folder"
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(bed.bytes_of(content))
    plain = [line.replace(str(folder), "HERE") for line in bed.lines(bed.run(folder / "app.py"))]
    built = bed.archive(tmp_path / "app.pyz", files, minify=minify)
    bundled = [line.replace(str(built), "HERE") for line in bed.lines(bed.run(built))]
    assert bundled == plain
    return bundled


def test_the_loader_s_methods(tmp_path: Path) -> None:
    files: bed.Files = {
        **PACKAGE,
        "app.py": """
            import importlib, importlib.util, inspect, os, pickle, sys, pack.part, pack.twice
            here = os.path.dirname(pack.__path__[0])
            def short(text): return str(text).replace(here, "HERE")
            for name in "pack", "pack.part", "pack.bare.deep":
                module = importlib.import_module(name)
                spec = importlib.util.find_spec(name)
                loader = spec.loader
                print(spec.name, short(spec.origin), spec.has_location, spec.parent)
                print(short(spec.submodule_search_locations))
                print(short(loader.get_filename(name)), loader.is_package(name), module.__loader__ is loader)
                print(loader.get_source(name), loader.get_data(module.__file__) == loader.get_source(name).encode())
                code = loader.get_code(name)
                print(short(code.co_filename), code.co_name, short(loader.get_resource_reader(name).files()))
            for wrong in loader.get_code, loader.get_source, loader.is_package, loader.get_filename:
                try:
                    wrong("pack.none")
                except ImportError as error:
                    print("ImportError")
            try:
                loader.get_data(here + "/pack/none")
            except OSError as error:
                print(type(error).__name__, short(error.filename))
            old, n = pack.twice, pack.twice.N
            print(importlib.reload(pack.twice) is old, pack.twice.N, n)
            del sys.modules["pack.twice"]
            print(importlib.import_module("pack.twice") is old, pack.twice.N)
            try:
                import pack.broken
            except RuntimeError as error:
                print(error, "pack.broken" in sys.modules, hasattr(pack, "broken"))
            print(pickle.loads(pickle.dumps(pack.part.Thing().method)).__self__.method())
            print(importlib.util.find_spec("pack.none"), importlib.util.find_spec("none"))
            importlib.invalidate_caches()
            fresh = importlib.util.module_from_spec(importlib.util.find_spec("pack.part"))
            fresh.__spec__.loader.exec_module(fresh)
            print(fresh is pack.part, fresh.Thing is pack.part.Thing, short(fresh))
            spec = importlib.util.find_spec("pack.part")
            spec.loader = importlib.util.LazyLoader(spec.loader)
            lazy = sys.modules["pack.part"] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(lazy)
            print("Thing" in object.__getattribute__(lazy, "__dict__"), lazy.Thing.__name__)
            sys.modules["pack.part"] = pack.part
            print(inspect.getsource(pack.part.Thing.method), inspect.getsourcelines(pack.part.Thing)[1])
            print(inspect.getdoc(pack.part.Thing), short(inspect.getsourcefile(pack.part.Thing)))
            print(inspect.getmodule(pack.part.fail.__code__) is pack.part, inspect.getcomments(pack.part.Thing))
        """,
    }
    both(tmp_path, files)


def test_old_ways_to_import(tmp_path: Path) -> None:
    files: bed.Files = {
        **PACKAGE,
        "app.py": """
            import importlib, os, pkgutil, sys, warnings, pack
            warnings.simplefilter("ignore")
            print([info.name for info in pkgutil.iter_modules(pack.__path__, "pack.")])
            for info in pkgutil.iter_modules(pack.__path__):
                if info.name == "part":
                    for name in "pack.part", "part":
                        spec = info.module_finder.find_spec(name)
                        module = spec.loader.load_module(name)
                        print(spec.name, module.__name__, module is sys.modules[name], module.Thing.__module__)
                        print(spec.loader.get_source(name)[:10], spec.loader.is_package(name), module.__package__)
            print(pack.__loader__.load_module("pack") is pack, sys.modules["pack"] is pack)
            print(pkgutil.get_data("pack", "data/note.txt"), pkgutil.resolve_name("pack.part:Thing").__name__)
            finder = pkgutil.get_importer(pack.__path__[0])
            print(finder.find_spec("none"), finder.find_spec("pack.part").name, finder.path == pack.__path__[0])
            finder.invalidate_caches()
        """,
    }
    both(tmp_path, files)


def test_packages_whose_path_is_changed(tmp_path: Path) -> None:
    files: bed.Files = {
        **PACKAGE,
        "first/twice.py": "N = 'first'\n",
        "first/__init__.py": "",
        "app.py": """
            import os, sys, pack, first, pkgutil, importlib.util, tempfile
            here = os.path.dirname(pack.__path__[0])
            pack.__path__.insert(0, first.__path__[0])
            import pack.twice, pack.part
            print(pack.twice.N, pack.twice.__name__, pack.twice.__file__ == first.__path__[0] + "/twice.py")
            with tempfile.TemporaryDirectory() as folder:
                os.mkdir(folder + "/pack")
                with open(folder + "/pack/other.py", "w") as file: file.write("N = 'other'")
                with open(folder + "/pack/twice.py", "w") as file: file.write("N = 'hidden'")
                sys.path.append(folder)
                pack.__path__ = pkgutil.extend_path([here + "/pack"], "pack")
                del sys.modules["pack.twice"]
                import pack.other, pack.twice
                print(pack.other.N, pack.twice.N, len(pack.__path__))
                pack.__path__ = []
                print(importlib.util.find_spec("pack.run"))
        """,
    }
    assert both(tmp_path, files) == ["first pack.twice True", "other 1 2", "None"]


def test_folders_without_init(tmp_path: Path) -> None:
    """They are namespace packages: their contents are resources, and they grow with `sys.path`."""
    files: bed.Files = {
        **PACKAGE,
        "spread/inside.py": "",
        "spread/note.txt": b"bundled",
        "spread/both/b.txt": b"bundled",
        "onlydata/table.csv": b"1,2",
        "app.py": """
            import importlib, os, sys, tempfile
            from importlib.machinery import NamespaceLoader
            from importlib.resources import as_file, files
            import pack.bare, pack.data, pack.data.inner, spread, onlydata
            for module in pack.bare, pack.data, pack.data.inner, spread, onlydata:
                print(module.__name__, module.__file__, module.__spec__.origin, len(module.__path__))
                print(isinstance(module.__loader__, NamespaceLoader), type(module.__path__).__name__)
            def names(folder): return sorted(each.name for each in folder.iterdir() if each.name != "__pycache__")
            with tempfile.TemporaryDirectory() as folder:
                os.makedirs(folder + "/spread/both")
                for path in "outside.py", "note.txt", "other.txt", "both/c.txt":
                    with open(f"{folder}/spread/{path}", "w") as file: file.write("outside = 1")
                sys.path.append(folder)
                import spread.outside, spread.inside
                print(len(spread.__path__), names(files("spread")))
                print(files("spread").joinpath("note.txt").read_text(), (files("spread") / "other.txt").read_bytes())
                print((files("spread") / "none").is_file(), (files("spread") / "both").is_dir())
                importlib.invalidate_caches()
                sys.path.remove(folder)
                print(len(spread.__path__))
        """,
    }
    printed = both(tmp_path, files)
    assert "2 ['both', 'inside.py', 'note.txt', 'other.txt', 'outside.py']" in printed


def test_resources_of_folders_of_data(tmp_path: Path) -> None:
    """Where Python 3.11 itself can't, since the folder is in no file system."""
    files: bed.Files = {
        **PACKAGE,
        "app.py": """
            import pickle
            from importlib.resources import as_file, files
            data = files("pack.data")
            print(sorted(each.name for each in data.iterdir()), data.joinpath("inner", "blob.bin").read_bytes())
            note = data / "note.txt"
            print(repr(note.open("r", encoding="utf-8", newline="").read()), repr(note.open(mode="rt").read()))
            print(note.open("br", buffering=0).read(), note.suffix, note.stem, note.name, note.parent.name)
            print([str(each)[-8:] for each in files("pack").rglob("*.bin")], len(list(files("pack").glob("*.py"))))
            with as_file(note) as path:
                print(path.read_bytes(), path.suffix)
            print(pickle.loads(pickle.dumps(note)) == note)
            for mode, options in ("w", {}), ("r+", {}), ("x", {}), ("rb", {"encoding": "utf-8"}), ("", {}):
                try:
                    note.open(mode, **options)
                except ValueError as error:
                    print("ValueError")
        """,
    }
    assert bed.lines(bed.run(bed.archive(tmp_path / "app.pyz", files))) == [
        r"['inner', 'note.txt'] b'\x00\x01'",
        r"'a note\r\n' 'a note\n'",
        r"b'a note\r\n' .txt note note.txt data",
        "['blob.bin'] 6",
        r"b'a note\r\n' .txt",
        "True",
        *["ValueError"] * 5,
    ]


@pytest.mark.parametrize("minify", [False, True])
def test_lines_are_shown_to_all_who_ask(tmp_path: Path, minify: bool) -> None:
    """Warnings, threads, the debugger, `runpy`: original numbers, original text."""
    files: bed.Files = {
        **PACKAGE,
        "app.py": """
            import io, os, pdb, runpy, sys, threading, traceback, warnings, pack.part
            here = os.path.dirname(pack.__path__[0])
            sys.stderr = written = io.StringIO()
            pack.part.warn()
            thread = threading.Thread(target=pack.part.fail, name="worker")
            thread.start()
            thread.join()
            sys.argv[0] = here + "/pack/run.py"
            runpy.run_module("pack.run", run_name="other", alter_sys=True)
            runpy.run_module("pack.run", run_name="__main__")
            runpy.run_module("pack", run_name="__main__", alter_sys=True)
            try:
                runpy.run_module("pack.part", run_name="__main__")["fail"]()
            except ValueError as error:
                print(traceback.extract_tb(error.__traceback__)[-1].line)
            debugger = pdb.Pdb(stdin=io.StringIO("b fail\\nc\\nw\\nl\\nc\\n"), stdout=sys.stdout, nosigint=True)
            debugger.use_rawinput = False
            try:
                debugger.runcall(pack.part.fail)
            except ValueError:
                pass
            print(written.getvalue())
        """,
    }
    printed = [line.strip() for line in both(tmp_path, files, minify)]
    assert printed.count('raise ValueError("no")  # there') == 2
    assert 'warnings.warn("careful", stacklevel=1)  # here' in printed
    assert [line for line in printed if "Breakpoint 1 at HERE/pack/part.py:" in line], printed


def test_the_archive_put_back_on_the_path(tmp_path: Path) -> None:
    """By a program that adds the folder above its packages: the rule of which copy wins stays."""
    files: bed.Files = {
        **PACKAGE,
        "uuid.py": "BACKPORT = True\n",
        "app.py": """
            import os, sys, pkgutil, pack
            here = os.path.dirname(os.path.dirname(pack.__file__))
            sys.path.insert(0, here)
            import pack.part, uuid
            print(hasattr(uuid, "BACKPORT"), type(pack.part.__loader__).__name__)
            names = [info.name for info in pkgutil.iter_modules([here])]
            print([name for name in names if name in ("pack", "app", "uuid", "pack.part")])
            import runpy
            print(runpy.run_path(here, run_name="again")["__name__"])
        """,
    }
    built = bed.archive(tmp_path / "app.pyz", files)
    assert bed.lines(bed.run(built)) == ["False BundleLoader", "['app', 'pack']", "again"]


def test_a_namespace_that_was_imported_before(tmp_path: Path) -> None:
    """As `*-nspkg.pth` files do at the start of Python."""
    site = tmp_path / "site"
    (site / "spread").mkdir(parents=True)
    (site / "spread" / "outside.py").write_text("WHERE = 'outside'\n")
    (site / "spread" / "inside.py").write_text("WHERE = 'wrong'\n")
    (site / "sitecustomize.py").write_text("import spread.outside, spread.inside\nspread.mark = 1\n")
    files: bed.Files = {
        "spread/inside.py": "WHERE = 'inside'\n",
        "app.py": """
            import spread.inside, spread.outside
            print(spread.inside.WHERE, spread.outside.WHERE, spread.mark, len(spread.__path__))
        """,
    }
    built = bed.archive(tmp_path / "app.pyz", files)
    done = bed.run(built, environment={"PYTHONPATH": str(site)})
    assert bed.lines(done) == ["inside outside 1 2"]
    (site / "spread" / "__init__.py").write_text("mark = 2\n")
    done = bed.run(built, environment={"PYTHONPATH": str(site)})
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'spread.outside'"


def test_damage_is_not_taken_for_a_missing_module(tmp_path: Path) -> None:
    """An optional import must not hide it."""
    files: bed.Files = {
        **PACKAGE,
        "app.py": """
            try:
                import pack.twice
            except ImportError:
                print("goes on without")
        """,
    }
    built = bed.archive(tmp_path / "app.pyz", files)
    data = bytearray(built.read_bytes())
    data[data.index(b"pack/twice.py")] ^= 1  # in the code, which comes first
    built.write_bytes(data)
    done = bed.run(built)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"error: {built} was damaged after it was built",
        "fix: Copy or build the file again (python -m build).",
    ]


@pytest.mark.parametrize("minify", [False, True])
def test_plain_zipimport_reads_it(tmp_path: Path, minify: bool) -> None:
    """Without our code: as a zip on `sys.path`."""
    built = bed.archive(tmp_path / "app.pyz", {**PACKAGE, "app.py": ""}, minify=minify)
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import sys, zipimport
sys.path.insert(0, {str(built)!r})
import pack.part, pkgutil, importlib.metadata
print(type(pack.part.__loader__).__name__, pack.part.Thing().method(), pkgutil.get_data("pack", "data/note.txt"))
print([info.name for info in pkgutil.walk_packages(pack.__path__, "pack.") if info.name[-1] != "_"])
finder = zipimport.zipimporter({str(built)!r})
print(pack.part.__loader__.get_source("pack.part").count("return 1"), finder.is_package("pack"))
print("trainer_boot.finder" in sys.modules)
"""
    )
    for python in filter(None, {sys.executable, bed.other_python()}):
        assert bed.lines(bed.run(script, python=python)) == [
            "zipimporter 1 b'a note\\r\\n'",
            "['pack.broken', 'pack.part', 'pack.run', 'pack.twice']",
            "1 True",
            "False",
        ]
