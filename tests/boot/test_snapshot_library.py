"""The snapshot with the standard library's modules, extension modules and namespace packages."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.boot import test_snapshot as bed
from tests.boot.test_snapshot import ROOT, Environment, served, why
from trainer_boot import snapshot, snapshot_choice, snapshot_key

environment, made = bed.environment, bed.made

FACTS = """
    import importlib, json, sys
    from trainer_boot import snapshot

    if sys.argv[1] != "plain":
        note = snapshot.serve(sys.argv[1])
    NAMES = ("asyncio.tasks", "email.message", "decimal", "_decimal", "unittest.mock", "numpy.random._common")
    facts = []
    for name in NAMES:
        module = importlib.import_module(name)
        spec = module.__spec__
        facts.append([name, module.__file__, getattr(module, "__cached__", None), spec.origin, spec.cached])
        facts.append([spec.has_location, spec.parent, spec.submodule_search_locations])
        facts.append([getattr(module, "__path__", None), spec.loader.path, spec.loader.is_package(name)])
        facts.append([spec.loader.get_source(name), sorted(vars(module))])
    if sys.argv[1] != "plain":
        made = snapshot.record_if_missing(100)["made"]
        print(json.dumps([note, made, snapshot.report()]))
    print(json.dumps(facts))
    """


def facts(cache: Path, check: str) -> list[Any]:
    variables = {**os.environ, "TRAINER_SNAPSHOT_DIR": str(cache), "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-c", dedent(FACTS), check]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("check", ["fast", "full"])
def test_modules_of_the_standard_library_are_as_from_their_files(tmp_path: Path, check: str) -> None:
    (plain,) = facts(tmp_path, "plain")
    (note, recorded, _), first = facts(tmp_path, check)
    assert (note["state"], recorded, first) == ("aside", True, plain)
    (note, recorded, report), again = facts(tmp_path, check)
    assert (note["state"], recorded, again) == ("on", False, plain)
    assert report["served"] > 100
    assert report["placed"] > 5


def test_the_order_of_the_recorded_folders_counts(environment: Environment, tmp_path: Path) -> None:
    other = Environment(tmp_path / "other")
    for each, text in ((environment, "first"), (other, "second")):
        each.write("snapextra.py", f"NAME = {text!r}\n")
        each.write("two-1.dist-info/RECORD", "snapextra.py,,\n")
        each.settle()
    sites, cache = [str(environment.site), str(other.site)], str(environment.cache)
    sys.path.append(sites[1])
    environment.use("snapextra")
    snapshot.make(["snapextra"], sites=sites, cache=cache)
    for order, name, count in ((sites, "first", 1), (sites[::-1], "second", 0)):
        sys.path[-2:] = order
        environment.forget()
        snapshot.serve(sites=sites, cache=cache)
        environment.use("snapextra")
        assert (sys.modules["snapextra"].NAME, served()) == (name, count)


def test_an_edited_source_of_the_library_is_seen_by_the_full_check(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "python"
    library.mkdir()
    source = library / "snapextra.py"
    source.write_text("VALUE = 1\n")
    os.utime(library, ns=(bed.PAST, bed.PAST))
    for room in (snapshot_key, snapshot_choice):
        monkeypatch.setattr(room, "library_folders", lambda: [str(library)])
    monkeypatch.setattr(sys, "stdlib_module_names", sys.stdlib_module_names | {"snapextra"})
    sys.path.insert(0, str(library))
    environment.use("snapextra")
    environment.make()
    assert environment.serve("full")["state"] == "on"
    environment.use("snapextra")
    assert served() == 1
    source.write_text("VALUE = 12345\n")
    assert environment.serve("fast")["state"] == "on"
    assert "edited" in why(environment.serve("full"))
    (library / "new.py").touch()
    assert "changed" in why(environment.serve("fast"))


def test_another_portion_before_it_wins(made: Environment, tmp_path: Path) -> None:
    (tmp_path / "mine/snapspace").mkdir(parents=True)
    (tmp_path / "mine/snapspace/plain.py").write_text("A = 'mine'\n")
    made.serve()
    made.use("snapspace.plain")
    assert served() == 1
    made.serve()
    sys.path.insert(0, str(tmp_path / "mine"))
    made.use("snapspace.plain")
    assert sys.modules["snapspace.plain"].A == "mine"
    assert served() == 0


def test_what_a_process_has_beyond_the_snapshot_is_counted_without_a_look(made: Environment) -> None:
    made.use("snapone.late")
    names = ["snapone.late", "snapone", "sys", "os", "no.such", "trainer_boot.snapshot"]
    assert snapshot_choice.foreign(names, [str(made.site)]) == 2 + (os.__spec__.origin != "frozen")


def test_distutils_is_left_to_setuptools() -> None:
    assert list(snapshot_choice.choose(["distutils", "distutils.core"], snapshot_key.site_folders())) == []
    chosen = {each.name: each for each in snapshot_choice.choose(["json", "_json"], [])}
    assert (chosen["json"].is_package, chosen["json"].file) == (True, "json/__init__.py")
    assert snapshot_key.source_path(chosen["json"].folder, "json", True) == json.__file__
