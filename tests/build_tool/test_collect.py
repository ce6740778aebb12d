"""Fetching by hash, leaving out what belongs to one machine, and telling modules from data."""

import base64
import csv
import hashlib
import importlib.metadata
import shutil
from pathlib import Path

import pytest

from build.collect import collect
from build.errors import BuildError
from build.tree import Tree
from build.uv import find_uv
from tests.build_tool.wheel_bed import locked, source_tree, wheel

FILES = {
    "plain/__init__.py": b"",
    "plain/templates/page.py": b"# {{ a template }}\n",
    "plain/loaded/extra.py": b"x = 1\n",
    "plain/user.py": b"from . import loaded\n",
    "plain/data.bin": b"\x00\r\n",
    "plain/2to3.py": b"no module: the name is none\n",
    "single.py": b"y = 2\n",
    "plain/hidden.py": b"never imported: there is a package of that name\n",
    "plain/hidden/__init__.py": b"",
    "space/inner/mod.py": b"z = 3\n",
    "plain-1.0-nspkg.pth": b"import plain\n",
    "plain-1.0.data/scripts/run-plain": b"#!python\n",
    "plain-1.0.data/data/share/man/plain.1": b"manual\n",
    "plain-1.0.dist-info/entry_points.txt": b"[console_scripts]\nplain = plain.user:main\n",
}


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_uv()
    except BuildError:
        pytest.skip("no uv here: start the tests by `sh tools/uv run pytest`")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")


def collected(tmp_path: Path, files: dict[str, bytes] | None = None) -> Tree:
    value = wheel(tmp_path / "wheels", "plain", "1.0", FILES if files is None else files)
    _, resolution = locked(tmp_path / "lock", {"plain 1.0": value})
    return collect(resolution, source_tree(tmp_path / "checkout"), tmp_path / "cache")


def test_modules_and_data_are_told_apart(tmp_path: Path) -> None:
    tree = collected(tmp_path)
    files = {file.path: file for file in tree if file.package == "plain" and ".dist-info" not in file.path}
    assert {path: file.module for path, file in files.items()} == {
        "plain/2to3.py": None,
        "plain/__init__.py": "plain",
        "plain/data.bin": None,
        "plain/hidden.py": None,
        "plain/hidden/__init__.py": "plain.hidden",
        "plain/loaded/extra.py": "plain.loaded.extra",  # no __init__.py, but imported
        "plain/templates/page.py": None,
        "plain/user.py": "plain.user",
        "single.py": "single",
        "space/inner/mod.py": "space.inner.mod",
    }
    assert all(file.data == FILES[path] for path, file in files.items())
    assert files["plain/__init__.py"].is_package
    assert files["plain/user.py"].original == files["plain/user.py"].data


def test_own_packages_come_without_what_editors_and_runs_leave(tmp_path: Path) -> None:
    tree = collected(tmp_path)
    own = {file.path: file.module for file in tree if file.package == "app-name" and ".dist-info" not in file.path}
    assert own == {
        "trainer/__init__.py": "trainer",
        "trainer/cli.py": "trainer.cli",
        "trainer/py.typed": None,
        "trainer_boot/__init__.py": "trainer_boot",
    }


def test_metadata_is_what_an_installer_would_write(tmp_path: Path) -> None:
    tree = collected(tmp_path)
    for file in tree:
        if ".dist-info/" in file.path:
            path = tmp_path / "out" / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
    found = {each.name: each for each in importlib.metadata.distributions(path=[str(tmp_path / "out")])}
    own = found["App.Name"]
    assert own.version == "0.1.0"
    assert own.metadata["Summary"] == "What it is"
    assert own.metadata["Requires-Python"] == ">=3.11"
    assert own.requires == ["plain>=1", "other ; sys_platform == 'linux' and extra == 'more'"]
    assert [(each.group, each.name, each.value) for each in own.entry_points] == [
        ("console_scripts", "app", "trainer.cli:main"),
        ("app.plugins", "one", "trainer.cli:one"),
    ]
    assert own.read_text("licenses/LICENSE") == "free\n"
    assert own.metadata["License-File"] == "LICENSE"
    assert [each.value for each in found["plain"].entry_points] == ["plain.user:main"]


def test_records_list_what_travels_and_nothing_of_the_installation(tmp_path: Path) -> None:
    tree = collected(tmp_path)
    for name, package in (("plain-1.0.dist-info", "plain"), ("app_name-0.1.0.dist-info", "app-name")):
        (record,) = [file for file in tree if file.path == f"{name}/RECORD"]
        rows = {path: (value, size) for path, value, size in csv.reader(record.data.decode().splitlines())}
        assert set(rows) == {file.path for file in tree if file.package == package}
        for file in tree:
            if file.package == package and file.path != record.path:
                digest = base64.urlsafe_b64encode(hashlib.sha256(file.data).digest()).rstrip(b"=").decode()
                # a module is minified later: its row has no hash
                assert rows[file.path] == (("", "") if file.module else (f"sha256={digest}", str(len(file.data))))
    names = {file.path.rpartition("/")[2] for file in tree}
    assert names.isdisjoint({"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "run-plain", "plain.1"})


def test_an_unchanged_build_needs_no_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = collected(tmp_path)
    monkeypatch.setattr("build.fetch.find_uv", lambda: pytest.fail("uv was started"))
    assert collected(tmp_path).digest() == first.digest()


def test_a_damaged_copy_is_fetched_again(tmp_path: Path) -> None:
    first = collected(tmp_path)
    (copy,) = (tmp_path / "cache").rglob("plain/user.py")
    copy.write_bytes(b"something else\n")
    assert collected(tmp_path).digest() == first.digest()
    (copy,) = (tmp_path / "cache").rglob("plain/user.py")
    copy.unlink()
    assert collected(tmp_path).digest() == first.digest()


def test_another_file_than_the_locked_one_is_refused(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "plain", "1.0", FILES)
    _, resolution = locked(tmp_path / "lock", {"plain 1.0": "sha256:" + "0" * 64})
    with pytest.raises(BuildError, match="could not fetch") as caught:
        collect(resolution, source_tree(tmp_path / "checkout"), tmp_path / "cache")
    assert "hash" in caught.value.what.lower()
    assert not list((tmp_path / "cache").rglob("plain"))


def test_an_unreachable_index_is_explained(tmp_path: Path) -> None:
    _, resolution = locked(tmp_path / "lock", {"plain 1.0": "sha256:" + "0" * 64})
    with pytest.raises(BuildError, match="could not fetch") as caught:
        collect(resolution, source_tree(tmp_path / "checkout"), tmp_path / "cache")
    assert "network" in caught.value.fix


def test_a_missing_uv_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(BuildError, match="there is no uv") as caught:
        collected(tmp_path)
    assert "tools/uv" in caught.value.fix


def test_native_code_in_a_pure_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"native code: plain/fast\.so"):
        collected(tmp_path, {"plain/__init__.py": b"", "plain/fast.so": b"\x7fELF"})


def test_a_lock_of_another_version_is_refused(tmp_path: Path) -> None:
    _, resolution = locked(tmp_path / "lock", {})
    checkout = source_tree(tmp_path / "checkout")
    path = checkout / "pyproject.toml"
    path.write_text(path.read_text().replace('version = "0.1.0"', 'version = "0.2.0"'))
    with pytest.raises(BuildError, match=r"0\.2\.0"):
        collect(resolution, checkout, tmp_path / "cache")
