"""What may wait is the known thing, or nothing waits and the report says why."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from tools import lazy_table
from trainer_boot import lazy
from trainer_boot.lazy import known, sources, table

SOURCE = Path(__file__).parents[3] / "src"


def version(number: str, commit: str | None) -> ModuleType:
    made = ModuleType("torch.version")
    vars(made).update(__version__=number, git_version=commit)
    return made


def test_the_table_is_that_of_the_installed_torch() -> None:
    assert lazy_table.text() == lazy_table.TARGET.read_text()
    assert set(sources.SOURCES) == {*table.DEFERRED, *table.ANSWERED}


def test_a_published_build_is_known_and_no_other() -> None:
    commit = table.BUILDS["2.15"]
    assert known.unknown_build(version("2.15.0+cpu", commit)) == ""
    for other in (version("2.16.0", commit), version("2.15.1", "0" * 40), version("2.15.0", None)):
        assert "proven on torch 2.15" in known.unknown_build(other)


@pytest.mark.parametrize("check", ["fast", "full"])
def test_each_source_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    content = b"kept = 1\n"
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "one.py").write_bytes(content)
    (tmp_path / "torch" / "two").mkdir()
    (tmp_path / "torch" / "two" / "__init__.py").write_bytes(content)
    fact = (len(content), known._digest(str(tmp_path / "torch" / "one.py")))
    monkeypatch.setattr(known, "SOURCES", {"torch.one": fact, "torch.two": fact})
    root = str(tmp_path / "torch")
    assert known.unknown_source(root, check) == ""
    (tmp_path / "torch" / "two" / "__init__.py").write_bytes(b"edited = 12\n")
    assert "torch.two is not the known one" in known.unknown_source(root, check)
    (tmp_path / "torch" / "one.py").unlink()
    assert "torch.one: No such file" in known.unknown_source(root, check)


def test_the_digest_finds_what_the_size_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.py").write_bytes(b"a = 1\n")
    monkeypatch.setattr(known, "SOURCES", {"torch.one": (6, "0" * 16)})
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "one.py").write_bytes(b"a = 2\n")
    assert known.unknown_source(str(tmp_path / "torch"), "fast") == ""
    assert "digest" in known.unknown_source(str(tmp_path / "torch"), "full")


def test_it_steps_aside_where_torch_is_imported_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "_waiting", None)
    monkeypatch.setattr(lazy, "_note", {})
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    finders = list(sys.meta_path)
    note = lazy.install()
    assert (note["state"], note["why"]) == ("aside", "torch is imported already")
    assert sys.meta_path == finders
    lazy.flush()


def test_of_an_unknown_build_nothing_waits(tmp_path: Path) -> None:
    """A package called torch with the modules in question, which import one another as torch's do."""
    place = tmp_path / "torch"
    (place / "fx").mkdir(parents=True)
    (place / "__init__.py").write_text("from torch import fx as fx\nimport torch.hub\n")
    (place / "version.py").write_text("__version__ = '2.15.9'\ngit_version = 'abcdef'\n")
    (place / "fx" / "__init__.py").write_text("value = 1\n")
    (place / "hub.py").write_text("value = 2\n")
    script = (
        "from trainer_boot import lazy; note = lazy.install(); import torch; "
        "print(note['state'], note['modules'], type(torch.fx).__name__, torch.hub.value, note['why'])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(SOURCE)])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("aside [] module 2 proven on torch 2.15"), done.stdout + done.stderr


def test_there_is_a_torch_to_compare_with() -> None:
    assert find_spec("torch") is not None
