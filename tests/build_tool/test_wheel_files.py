"""Wheels that an archive cannot stand for, and settings that allow one all the same."""

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from build.errors import BuildError
from build.lock import Package
from build.wheel_files import Damaged, wheel_files
from tests.build_tool.lock_bed import lock, package, project
from tests.build_tool.wheel_bed import wheel

INFORMATION = "plain-1.0.dist-info"


def plain(folder: Path) -> Package:
    folder.mkdir(exist_ok=True)
    found = lock(folder, project('{ name = "plain" }'), package("plain", "1.0"))
    return next(each for each in found.packages if each.name == "plain")


def unpacked(folder: Path, files: dict[str, bytes], tag: str = "py3-none-any") -> Path:
    """A wheel of these files, unpacked."""
    wheel(folder / "wheels", "plain", "1.0", {"plain/__init__.py": b"", **files}, tag)
    with zipfile.ZipFile(next((folder / "wheels").iterdir())) as archive:
        archive.extractall(folder / "here")
    return folder / "here"


def read(folder: Path, here: Path, ignore_pth: frozenset[str] = frozenset()) -> list[str]:
    return [path for path, _, _ in wheel_files(plain(folder / "lock"), here, ignore_pth)]


def coded(kind: str) -> str:
    """The hash of b"1" as a RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.new(kind, b"1").digest()).rstrip(b"=").decode()


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_a_plain_wheel_travels(tmp_path: Path) -> None:
    here = unpacked(tmp_path, {"plain/data.bin": b"\0", "plain/__pycache__/x.cpython-311.pyc": b"junk"})
    assert read(tmp_path, here) == [
        f"{INFORMATION}/METADATA",
        f"{INFORMATION}/WHEEL",
        "plain/__init__.py",
        "plain/data.bin",
    ]


@pytest.mark.parametrize(
    ("path", "data", "why"),
    [
        ("plain/fast.so", b"", "is locked as pure Python but has native code: plain/fast.so"),
        ("plain/model.dat", b"\x7fELF\2\1", "is locked as pure Python but has native code: plain/model.dat"),
        ("plain/tool", b"\xcf\xfa\xed\xfe", "is locked as pure Python but has native code: plain/tool"),
        ("plain/secret.pyc", b"code", "has bytecode without its source, which no other Python can read"),
        ("plain.pth", b"import plain\n", "plain 1.0 has plain.pth, whose lines an environment runs at every start"),
    ],
)
def test_what_an_archive_cannot_stand_for_is_refused(tmp_path: Path, path: str, data: bytes, why: str) -> None:
    with pytest.raises(BuildError, match=r"plain 1\.0") as refused:
        read(tmp_path, unpacked(tmp_path, {path: data}))
    assert why in refused.value.what
    assert 'add "plain" to `environment` in [tool.trainer-build]' in refused.value.fix


def test_a_pth_file_may_be_ignored_on_request(tmp_path: Path) -> None:
    here = unpacked(tmp_path, {"plain.pth": b"import plain\n"})
    assert "plain.pth" not in read(tmp_path, here, frozenset({"Plain"}))


def test_a_wheel_that_says_it_is_not_pure_is_refused(tmp_path: Path) -> None:
    here = unpacked(tmp_path, {})
    edit(here / INFORMATION / "WHEEL", "Root-Is-Purelib: true", "Root-Is-Purelib: false")
    with pytest.raises(BuildError, match="Root-Is-Purelib: false"):
        read(tmp_path, here)


@pytest.mark.parametrize("tag", ["cp311-none-any", "py3-none-linux_x86_64", "cp311-cp311-any"])
def test_a_wheel_that_is_for_one_python_or_platform_is_refused(tmp_path: Path, tag: str) -> None:
    with pytest.raises(BuildError, match=f"says `Tag: {tag}`"):
        read(tmp_path, unpacked(tmp_path, {}, tag))


def test_a_file_that_is_not_in_the_record_is_refused(tmp_path: Path) -> None:
    here = unpacked(tmp_path, {})
    (here / "plain" / "added.py").write_text("x = 1\n")
    with pytest.raises(BuildError, match=r"has a file that its RECORD does not list: plain/added\.py"):
        read(tmp_path, here)


def test_a_changed_file_is_damage(tmp_path: Path) -> None:
    here = unpacked(tmp_path, {"plain/data.bin": b"1"})
    (here / "plain" / "data.bin").write_bytes(b"2")
    with pytest.raises(Damaged, match=r"plain/data\.bin of plain 1\.0 is not what its RECORD says"):
        read(tmp_path, here)


@pytest.mark.parametrize("kind", ["md5", "sha1", ""])
def test_weak_and_missing_hashes_are_refused(tmp_path: Path, kind: str) -> None:
    here = unpacked(tmp_path, {"plain/data.bin": b"1"})
    edit(here / INFORMATION / "RECORD", f"sha256={coded('sha256')}", f"{kind}={coded(kind)}" if kind else "")
    with pytest.raises(BuildError, match=f"a hash that is not secure .{kind}." if kind else "has no hash for"):
        read(tmp_path, here)


def test_a_stronger_hash_is_compared(tmp_path: Path) -> None:
    here = unpacked(tmp_path, {"plain/data.bin": b"1"})
    edit(here / INFORMATION / "RECORD", f"sha256={coded('sha256')}", f"sha512={coded('sha512')}")
    assert "plain/data.bin" in read(tmp_path, here)
    (here / "plain" / "data.bin").write_bytes(b"2")
    with pytest.raises(Damaged):
        read(tmp_path, here)


def test_metadata_of_another_version_is_refused(tmp_path: Path) -> None:
    here = unpacked(tmp_path, {})
    (here / INFORMATION).rename(here / "plain-2.0.dist-info")
    with pytest.raises(BuildError, match=r"has the metadata of plain 2\.0"):
        read(tmp_path, here)
