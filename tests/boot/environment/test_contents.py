"""Metadata and what is behind them."""

import json
import sys
from pathlib import Path

import pytest

from tests.boot.environment.bed import install, requirement
from trainer_boot.environment.contents import look
from trainer_boot.environment.installed import survey
from trainer_boot.environment.problems import Problem

NUMPY = requirement("numpy", "2.4.6", "sha256:aa")


def found(*folders: Path, wanted: dict[str, object] = NUMPY) -> list[Problem]:
    return look([wanted], survey(map(str, folders)))


def one(*folders: Path) -> Problem:
    (problem,) = found(*folders)
    return problem


def test_what_is_whole_is_not_mentioned(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.4.6")
    assert found(tmp_path) == []


def test_half_an_uninstall(tmp_path: Path) -> None:
    (install(tmp_path, "numpy", "2.4.6") / "METADATA").unlink()
    problem = one(tmp_path)
    assert (problem.kind, problem.fatal) == ("half-removed", True)
    assert problem.fix.startswith("run rm -r ")


def test_metadata_of_another_version(tmp_path: Path) -> None:
    metadata = install(tmp_path, "numpy", "2.4.6") / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 2.0\n")
    problem = one(tmp_path)
    assert problem.kind == "stale"
    assert "numpy 2.0" in problem.what


@pytest.mark.parametrize("path", ["numpy/__init__.py", "numpy/part.py"])
def test_metadata_without_code(tmp_path: Path, path: str) -> None:
    install(tmp_path, "numpy", "2.4.6")
    (tmp_path / path).unlink()
    problem = one(tmp_path)
    assert (problem.kind, problem.fatal) == ("no-code", True)
    assert path in problem.what
    assert "reinstall" in problem.fix


def test_a_module_alone_and_one_that_is_a_shared_object(tmp_path: Path) -> None:
    files = {"numpy.py": b"", "_numpy.cpython-311-x86_64-linux-gnu.so": b""}
    install(tmp_path, "numpy", "2.4.6", files)
    assert found(tmp_path) == []
    (tmp_path / "_numpy.cpython-311-x86_64-linux-gnu.so").unlink()
    assert one(tmp_path).kind == "no-code"


@pytest.mark.parametrize("shadow", ["numpy.py", "numpy/__init__.py", "numpy.abi3.so"])
def test_code_that_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shadow: str) -> None:
    install(tmp_path / "site", "numpy", "2.4.6")
    path = tmp_path / "mine" / shadow
    path.parent.mkdir(parents=True)
    path.touch()
    monkeypatch.delenv("PYTHONPATH", raising=False)
    problem = one(tmp_path / "mine", tmp_path / "site")
    assert (problem.kind, problem.fatal) == ("shadowed", True)
    assert "move " in problem.fix
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    assert "PYTHONPATH" in one(tmp_path / "mine", tmp_path / "site").fix
    assert found(tmp_path / "site", tmp_path / "mine") == []


def test_a_folder_without_init_hides_nothing(tmp_path: Path) -> None:
    install(tmp_path / "site", "numpy", "2.4.6")
    (tmp_path / "mine" / "numpy").mkdir(parents=True)
    assert found(tmp_path / "mine", tmp_path / "site") == []


def test_the_users_own_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import site

    install(tmp_path / "site", "numpy", "2.4.6")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "numpy.py").touch()
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(site, "USER_SITE", str(tmp_path / "own"))
    assert f"{sys.executable} -s" in one(tmp_path / "own", tmp_path / "site").fix


def test_one_that_another_hides_is_a_note(tmp_path: Path) -> None:
    install(tmp_path / "first", "numpy", "2.4.6")
    install(tmp_path / "second", "numpy", "1.0")
    problem = one(tmp_path / "first", tmp_path / "second")
    assert (problem.kind, problem.fatal) == ("hidden", False)
    assert "1.0" in problem.what


def test_what_an_uninstall_has_left_is_a_note(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.4.6")
    (tmp_path / "~umpy-2.4.5.dist-info").mkdir()
    problem = one(tmp_path)
    assert (problem.kind, problem.fatal) == ("leftover", False)
    assert problem.fix.startswith("rm -r ")


@pytest.mark.parametrize(
    ("origin", "fatal"),
    [
        ({"url": "file:///src/numpy", "dir_info": {"editable": True}}, True),
        ({"url": "file:///n.whl", "archive_info": {"hashes": {"sha256": "bb"}}}, False),
        ({"url": "file:///n.whl", "archive_info": {"hashes": {"sha256": "aa"}}}, None),
        ({"url": "file:///n.whl", "archive_info": {"hash": "sha256=aa"}}, None),
        ([], None),
    ],
)
def test_what_came_from_elsewhere(tmp_path: Path, origin: object, fatal: bool | None) -> None:
    information = install(tmp_path, "numpy", "2.4.6")
    (information / "direct_url.json").write_text(json.dumps(origin))
    assert [problem.fatal for problem in found(tmp_path)] == ([] if fatal is None else [fatal])


@pytest.mark.parametrize("spelling", ["Acme.Tool_kit", "acme-tool-kit", "ACME__tool.Kit"])
def test_every_spelling_of_a_name(tmp_path: Path, spelling: str) -> None:
    information = install(tmp_path, spelling, "1.0", {"acme.py": b""})
    assert found(tmp_path, wanted=requirement("acme-tool-kit", "1.0")) == []
    (tmp_path / "acme.py").unlink()
    assert [problem.kind for problem in found(tmp_path, wanted=requirement("acme-tool-kit", "1.0"))] == ["no-code"]
    assert information.exists()


def test_a_systems_own_package_without_record_is_taken(tmp_path: Path) -> None:
    (install(tmp_path, "numpy", "2.4.6") / "RECORD").unlink()
    assert found(tmp_path) == []
