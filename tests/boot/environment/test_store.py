"""Which store counts, and what is in it."""

import json
import os
import sys
from pathlib import Path

import pytest

from trainer_boot.environment import trusted
from trainer_boot.environment.carried import Carried, interpreter_tag, platform_tag, store_name
from trainer_boot.environment.refused import Refused
from trainer_boot.environment.store import Store, default_place, read_manifest

DIGEST = "0123456789abcdef" * 4


def carried(digest: str = DIGEST) -> Carried:
    table = {
        "format": 1, "requires_python": "", "supported": [], "packages": [], "sets": {"": {"": []}}, "installer": None,
        "digest": digest, "index": None,
    }  # fmt: skip
    return Carried(json.dumps(table).encode())


def stored(store: Store, name: str, python: bool = True) -> Path:
    """An environment as `create` leaves it, as far as looking for it goes."""
    path = Path(store.path_of(name))
    (path / "bin").mkdir(parents=True)
    manifest = {"format": 1, "lock": DIGEST, "python": "3.11.7", "variant": "", "extras": [], "size": 1, "packages": 1}
    (path / "trainer-environment.json").write_text(json.dumps(manifest))
    if python:
        (path / "bin" / "python").symlink_to("/bin/sh")
    return path


def test_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_ENV_STORE", "/some/where")
    assert Store().place == "/some/where"
    assert Store("/else/where").place == "/else/where"
    monkeypatch.delenv("TRAINER_ENV_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_place() == "/data/trainer-pyz"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_place() == "/home/me/.local/share/trainer-pyz"
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(Refused, match="no home"):
        default_place()


def test_what_has_no_manifest_or_no_name_yet_is_none(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    usual = store_name(carried())
    stored(store, f".new-{usual}.1.2")
    path = stored(store, usual)
    manifest = path / "trainer-environment.json"
    assert [each.name for each in store.all()] == [usual]
    for text in ("", "[]", "{}", '{"format": 2}', manifest.read_text()[:40]):
        manifest.write_text(text)
        assert read_manifest(str(path)) is None
        assert store.fitting(carried()) is None
    assert Store(str(tmp_path / "absent")).all() == []


def test_which_one_fits(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    usual = store_name(carried())
    stored(store, store_name(carried("f" * 64)))
    stored(store, usual.replace("-cp3", "-cp2"))
    assert store.fitting(carried()) is None
    stored(store, f"{usual}-cpu")
    found = store.fitting(carried())
    assert found is not None
    assert found.name == f"{usual}-cpu"
    stored(store, f"{usual}-cu130")
    with pytest.raises(Refused, match="several environments") as caught:
        store.fitting(carried())
    assert "env use" in caught.value.fix
    Path(store.profiles).mkdir()
    Path(f"{store.profiles}/default-4").symlink_to(f"../environments/{usual}-cu130")
    Path(f"{store.profiles}/default").symlink_to("default-4")
    found = store.fitting(carried())
    assert found is not None
    assert found.name == f"{usual}-cu130"
    Path(f"{store.profiles}/default").unlink()
    stored(store, usual)
    found = store.fitting(carried())
    assert found is not None
    assert found.name == usual


def test_a_current_one_of_another_python_comes_last(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    usual = store_name(carried())
    other = usual.replace(interpreter_tag(), "cp399")
    stored(store, other)
    Path(store.profiles).mkdir()
    Path(f"{store.profiles}/default-1").symlink_to(f"../environments/{other}")
    Path(f"{store.profiles}/default").symlink_to("default-1")
    found = store.fitting(carried())
    assert found is not None
    assert found.name == other
    stored(store, usual)
    found = store.fitting(carried())
    assert found is not None
    assert found.name == usual


def test_a_current_one_of_another_machine_is_passed_by(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    usual = store_name(carried())
    foreign = usual.replace(platform_tag(), "vax-linux-gnu")
    stored(store, foreign)
    stored(store, usual)
    Path(store.profiles).mkdir()
    Path(f"{store.profiles}/default-1").symlink_to(f"../environments/{foreign}")
    Path(f"{store.profiles}/default").symlink_to("default-1")
    found = store.fitting(carried())
    assert found is not None
    assert found.name == usual


def test_one_whose_interpreter_is_gone_does_not_fit(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    stored(store, store_name(carried()), python=False)
    assert store.fitting(carried()) is None
    assert len(store.all()) == 1


@pytest.mark.parametrize("which", ["", "environments", "environment"])
def test_who_else_could_write_it(tmp_path: Path, which: str) -> None:
    store = Store(str(tmp_path))
    name = store_name(carried())
    folder = {"": tmp_path, "environments": Path(store.environments), "environment": stored(store, name)}[which]
    folder.chmod(0o775)
    with pytest.raises(Refused, match="can be written by others") as caught:
        store.fitting(carried())
    assert caught.value.fix.startswith(f"Run `chmod go-w {folder}` if nobody else has changed anything there; ")
    assert store.all() == []
    folder.chmod(0o755)
    assert store.fitting(carried()) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_whose_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    path = stored(store, store_name(carried()))
    os.chown(path, 65534, 65534)
    with pytest.raises(Refused, match="belongs to another user") as caught:
        store.fitting(carried())
    assert "TRAINER_ENV_OWNERS=" in caught.value.fix
    for owners in ("65534", "root, nobody"):
        monkeypatch.setenv("TRAINER_ENV_OWNERS", owners)
        assert store.fitting(carried()) is not None
    monkeypatch.setenv("TRAINER_ENV_OWNERS", "no-such-user")
    with pytest.raises(Refused, match="no user 'no-such-user'"):
        store.fitting(carried())


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="cannot be written"):
        Store(str(tmp_path / "file")).make()


def whole(store: Store, name: str) -> Path:
    """With the entries that a start looks at, for this user alone."""
    path = stored(store, name)
    (path / "lib" / "python3.11" / "site-packages" / "torch" / "nn").mkdir(parents=True)
    (path / "pyvenv.cfg").write_text(f"home = {Path(sys._base_executable).parent}\n")  # type: ignore[attr-defined]
    (path / "lib64").symlink_to("lib")
    for name in ("torch/__init__.py", "torch/version.py", "extra.pth", "torch/nn/__init__.py"):
        (path / "lib" / "python3.11" / "site-packages" / name).write_text("")
    return path


SITE = "lib/python3.11/site-packages"


@pytest.mark.parametrize("which", ["bin", SITE, "lib", f"{SITE}/torch", f"{SITE}/extra.pth", "pyvenv.cfg"])
def test_an_entry_that_others_can_write(tmp_path: Path, which: str) -> None:
    store = Store(str(tmp_path))
    path = whole(store, store_name(carried()))
    assert store.fitting(carried()) is not None
    (path / which).chmod(0o777)
    with pytest.raises(Refused, match="can be written by others") as caught:
        store.fitting(carried())
    assert str(path / which) in caught.value.what
    (found, (other,)) = store.sorted_out()
    assert (found, other.what) == ([], caught.value.what)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    "which", ["bin/python", f"{SITE}/torch/__init__.py", f"{SITE}/torch/version.py", "trainer-environment.json"]
)
def test_an_entry_of_another_user(tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    path = whole(store, store_name(carried()))
    os.chown(path / which, 65534, 65534, follow_symlinks=False)
    with pytest.raises(Refused, match="belongs to another user") as caught:
        store.fitting(carried())
    assert str(path / which) in caught.value.what
    monkeypatch.setenv("TRAINER_ENV_OWNERS", "65534")
    assert store.fitting(carried()) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_only_the_full_check_looks_deeper(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    path = whole(store, store_name(carried()))
    os.chown(path / SITE / "torch" / "nn" / "__init__.py", 65534, 65534)
    (path / SITE / "torch" / "nn" / "__init__.py").chmod(0o666)
    assert store.fitting(carried()) is not None
    (problem,) = trusted.problems(str(path))
    assert problem.what.startswith(f"{path / SITE / 'torch' / 'nn' / '__init__.py'} belongs to another user")
    assert problem.fix.startswith("If you trust that user, set TRAINER_ENV_OWNERS=")


def test_the_way_to_it_counts(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    (open_folder / "store").mkdir(parents=True)
    store = Store(str(open_folder / "store"))
    whole(store, store_name(carried()))
    open_folder.chmod(0o777)
    with pytest.raises(Refused, match=r"no sticky bit.*on the way to"):
        store.fitting(carried())
    open_folder.chmod(0o1777)  # there nobody can replace what is another's
    assert store.fitting(carried()) is not None
    linked = tmp_path / "linked"
    linked.symlink_to(open_folder / "store")
    assert Store(str(linked)).fitting(carried()) is not None
    open_folder.chmod(0o777)
    with pytest.raises(Refused, match="no sticky bit"):
        Store(str(linked)).fitting(carried())


def test_a_manifest_that_is_no_file_is_none(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    manifest = whole(store, store_name(carried())) / "trainer-environment.json"
    manifest.rename(tmp_path / "elsewhere.json")
    os.mkfifo(manifest, 0o600)
    assert store.fitting(carried()) is None
    manifest.unlink()
    manifest.symlink_to(tmp_path / "elsewhere.json")
    assert store.fitting(carried()) is None
