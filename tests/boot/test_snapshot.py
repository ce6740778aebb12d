"""The import snapshot: what it serves, and when it steps aside. In folders of a test's own."""

import importlib
import inspect
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from trainer_boot import snapshot, snapshot_format, snapshot_serving
from trainer_boot.layers import Note

ROOT = Path(__file__).parent.parent.parent
PAST = 1_700_000_000_123_456_789

FILES = {
    "snapone/__init__.py": "VALUE = 1\n",
    "snapone/inner.py": '''
        """Of the snapshot."""
        from snapone import VALUE


        class Thing:
            def double(self) -> int:
                return VALUE * 2
        ''',
    "snapone/late.py": "LATE = True\n",
    "snapone/deep/__init__.py": "",
    "snapone/deep/leaf.py": "def fail():\n    raise ValueError('here')\n",
    "snapone/table.txt": "rows",
    "snaptwo.py": "import snapone.inner\nNAME = __name__\n",
    "snapspace/plain.py": "A = 1\n",
}
NAMES = ("snapone", "snaptwo", "snapspace", "snapextra")


class Environment:
    """A site-packages folder with one distribution."""

    def __init__(self, folder: Path) -> None:
        self.site = folder / "site-packages"
        self.cache = folder / "cache"
        for path, text in FILES.items():
            self.write(path, text)
        self.write("one-1.dist-info/RECORD", "".join(f"{path},,\n" for path in FILES))
        self.settle()

    def write(self, path: str, text: str) -> None:
        place = self.site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(dedent(text))

    def settle(self, later: int = 0) -> None:
        """As if nothing had been installed for long."""
        os.utime(self.site, ns=(PAST + later, PAST + later))

    def use(self, *names: str) -> None:
        for name in names or ("snaptwo", "snapone.deep.leaf", "snapspace.plain"):
            importlib.import_module(name)

    def forget(self) -> None:
        """As in a new process."""
        for name in [name for name in sys.modules if name.partition(".")[0] in NAMES]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def make(self) -> str:
        """Of its own modules; those of the standard library that the tests have imported are left out."""
        own = [name for name in sys.modules if name.partition(".")[0] in NAMES]
        return snapshot.make(own, sites=[str(self.site)], cache=str(self.cache))

    def serve(self, check: str = "fast") -> Note:
        self.forget()
        return snapshot.serve(check, sites=[str(self.site)], cache=str(self.cache))

    def serve_from_node(self) -> Note:
        self.forget()
        return snapshot.serve(sites=[str(self.site)], cache=str(self.cache), node_local="on")


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    path, hooks, written = list(sys.path), list(sys.path_hooks), sys.dont_write_bytecode
    made = Environment(tmp_path)
    sys.path.append(str(made.site))
    sys.dont_write_bytecode = True  # __pycache__ would change the folder
    yield made
    sys.path[:], sys.path_hooks[:], sys.dont_write_bytecode = path, hooks, written
    snapshot.withdraw()
    made.forget()


@pytest.fixture
def made(environment: Environment) -> Environment:
    environment.use()
    environment.make()
    return environment


def told(script: str, way: str, cache: Path) -> Any:
    """What the script, in a process of its own that is told the way, prints as JSON."""
    variables = {**os.environ, "TRAINER_SNAPSHOT_DIR": str(cache), "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-c", dedent(script), way]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def served() -> object:
    return snapshot.report().get("served")


def why(note: Note) -> str:
    assert note["state"] == "aside", note
    assert snapshot_serving.running() is None
    return str(note["why"])


def test_a_served_module_is_like_the_one_from_its_file(environment: Environment) -> None:
    def facts() -> list[object]:
        found: list[object] = []
        for name in ("snapone", "snapone.inner", "snapone.deep", "snapone.deep.leaf", "snaptwo"):
            module = importlib.import_module(name)
            spec = module.__spec__
            assert spec is not None
            loader = spec.loader
            assert isinstance(loader, SourceFileLoader)
            assert module.__loader__ is loader
            found += [module.__file__, module.__cached__, spec.origin, spec.cached, spec.has_location, spec.parent]
            found += [getattr(module, "__path__", None), spec.submodule_search_locations, module.__package__]
            found += [loader.get_code(name), loader.get_source(name), loader.is_package(name)]
            found += [loader.get_filename(name), loader.get_data(loader.path), module.__doc__, list(vars(module))]
        return found

    environment.use()
    plain = facts()
    environment.make()
    note = environment.serve()
    assert (note["state"], note["modules"]) == ("on", 6)
    environment.use()
    assert served() == 6
    assert facts() == plain


def test_tools_see_the_real_files(made: Environment) -> None:
    made.serve()
    made.use()
    inner = sys.modules["snapone.inner"]
    assert served() == 6
    assert "VALUE * 2" in inspect.getsource(inner.Thing.double)
    assert inspect.getsource(inner) == (made.site / "snapone/inner.py").read_text()
    assert type(pickle.loads(pickle.dumps(inner.Thing()))) is inner.Thing
    assert resources.files("snapone").joinpath("table.txt").read_text() == "rows"
    with pytest.raises(ValueError, match="here") as failure:
        sys.modules["snapone.deep.leaf"].fail()
    assert str(failure.traceback[-1].path) == str(made.site / "snapone/deep/leaf.py")


def test_what_is_not_in_it_falls_through(made: Environment) -> None:
    made.serve()
    made.use()
    before = served()
    assert importlib.import_module("snapone.late").LATE
    assert served() == before
    with pytest.raises(ModuleNotFoundError, match=r"snapone\.missing"):
        importlib.import_module("snapone.missing")


def test_a_module_that_is_loaded_again_is_read_from_its_file(made: Environment) -> None:
    made.serve()
    made.use()
    made.write("snapone/__init__.py", "VALUE = 12345\n")
    assert importlib.reload(sys.modules["snapone"]).VALUE == 12345


def test_a_copy_before_it_on_the_path_wins(made: Environment, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/snaptwo.py").write_text("NAME = 'mine'\n")
    made.serve()
    sys.path.insert(0, str(tmp_path / "mine"))
    assert importlib.import_module("snaptwo").NAME == "mine"
    sys.path.remove(str(made.site))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("snapone")


def test_a_package_from_elsewhere_keeps_its_own_submodules(made: Environment, tmp_path: Path) -> None:
    for path in ("snapone/__init__.py", "snapone/inner.py"):
        (tmp_path / "mine/snapone").mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / path).write_text("MINE = True\n")
    made.serve()
    sys.path.insert(0, str(tmp_path / "mine"))
    assert importlib.import_module("snapone.inner").MINE
    assert served() == 0


def test_hooks_of_others_are_asked(made: Environment) -> None:
    made.serve()

    def hook(path: str) -> FileFinder:
        raise ImportError

    sys.path_hooks.append(hook)
    made.use()
    assert served() == 0
    assert "hook" in why(made.serve())


def test_a_forked_child_is_served(made: Environment) -> None:
    made.serve()
    child = multiprocessing.get_context("fork").Process(target=_import_in_child)
    child.start()
    child.join(30)
    assert child.exitcode == 0
    made.use()
    assert served() == 6


def _import_in_child() -> None:
    importlib.import_module("snaptwo")
    assert served() == 3


@pytest.mark.parametrize("check", ["fast", "full"])
def test_install_upgrade_and_removal_are_noticed(made: Environment, check: str) -> None:
    assert made.serve(check)["state"] == "on"
    made.write("two-1.dist-info/RECORD", "")
    assert "installed" in why(made.serve(check))
    made.settle()
    made.forget()
    made.use()
    made.make()
    assert made.serve(check)["state"] == "on"
    (made.site / "one-1.dist-info").rename(made.site / "one-2.dist-info")
    assert "upgraded" in why(made.serve(check))


def test_times_that_a_tool_has_set_do_not_hide_a_change(environment: Environment) -> None:
    """Images and archives give every folder the same time, in whole seconds."""
    os.utime(environment.site, ns=(0, 0))
    environment.use()
    environment.make()
    assert environment.serve()["state"] == "on"
    (environment.site / "one-1.dist-info").rename(environment.site / "one-2.dist-info")
    os.utime(environment.site, ns=(0, 0))
    assert "changed" in why(environment.serve())


def test_an_edit_in_place_is_seen_by_the_full_check_only(made: Environment) -> None:
    made.write("snapone/__init__.py", "VALUE = 12345\n")
    assert made.serve("fast")["state"] == "on"
    assert "edited" in why(made.serve("full"))


def test_an_install_into_the_running_process_ends_serving(made: Environment) -> None:
    made.serve()
    made.write("snapone/__init__.py", "VALUE = 12345\n")
    made.write("one-2.dist-info/RECORD", "")
    importlib.invalidate_caches()
    assert importlib.import_module("snapone").VALUE == 12345
    assert served() == 0


def test_another_python_or_build_has_a_snapshot_of_its_own(made: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version", "3.99.0")
    assert why(made.serve()) == "there is none yet"


def test_only_ones_own_files_are_trusted(made: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(str(made.serve()["path"]))
    path.chmod(0o664)
    assert "written by others" in why(made.serve())
    path.chmod(0o644)
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))
    assert "can't be opened" in why(made.serve())
    path.unlink()
    os.mkfifo(path)
    assert "regular" in why(made.serve())
    path.unlink()
    path.with_suffix(".real").rename(path)
    assert made.serve()["state"] == "on"
    real = os.fstat

    def foreign(descriptor: int) -> os.stat_result:
        fields = list(real(descriptor))
        fields[4] = os.geteuid() + 1
        return os.stat_result(fields)

    snapshot.withdraw()
    monkeypatch.setattr(os, "fstat", foreign)
    assert "another user" in why(made.serve())
    monkeypatch.undo()
    note = snapshot.record_if_missing()  # in a folder of our own a new one takes its place
    assert (note["state"], note["made"]) == ("on", True)


@pytest.mark.parametrize("place", ["signature", "magic", "index", "end"])
def test_a_damaged_file_is_not_used(made: Environment, place: str) -> None:
    path = Path(str(made.serve()["path"]))
    snapshot.withdraw()
    data = bytearray(path.read_bytes())
    at = {"signature": 0, "magic": 9, "index": len(data) - 3, "end": 0}[place]
    data[at] ^= 0xFF
    if place == "end":
        data[at] ^= 0xFF
        del data[-1]
    path.write_bytes(data)
    assert "damaged" in why(made.serve())


def test_a_damaged_module_comes_from_its_file(made: Environment) -> None:
    path = Path(str(made.serve()["path"]))
    snapshot.withdraw()
    data = bytearray(path.read_bytes())
    data[snapshot_format.HEADER_SIZE + 10] ^= 0xFF
    path.write_bytes(data)
    made.serve()
    made.use()
    assert sys.modules["snapone"].VALUE == 1
    assert len(snapshot.report()["damaged"]) == 1  # type: ignore[arg-type]  # a list of names
    assert served() == 5


def test_a_closed_file_is_done_without(made: Environment) -> None:
    made.serve()
    finder = snapshot_serving.running()
    assert finder is not None
    number = finder.reader._descriptor
    os.close(number)
    made.use()
    assert served() == 0
    # somebody else has the number now, and keeps it
    with open(os.devnull) as other:
        assert other.fileno() == number
        snapshot.withdraw()
        assert other.read() == ""
