"""A file looked at from outside."""

import hashlib
from pathlib import Path

import pytest

from build.interpreters import find_interpreters
from tests.boot import bed
from trainer_boot.bundle_file import BundleFile
from trainer_boot.finder import BundleError

FILES: bed.Files = {"pack/__init__.py": "", "app.py": "A = 1", "note.txt": b"a note" * 100}


def test_what_is_in_it(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", FILES)
    file = BundleFile(str(place))
    assert file.sha256 == hashlib.sha256(place.read_bytes()).hexdigest()
    assert file.lock == hashlib.sha256(b"").hexdigest()
    assert file.size == sum(file.sizes().values()) == place.stat().st_size
    assert file.read("note.txt") == FILES["note.txt"]
    assert file.bill is None
    assert file.damage() == []
    (version,) = file.pythons
    assert {"app", "pack"} <= set(file.code(version))
    with pytest.raises(BundleError, match=r"has no code for Python 3\.2"):
        file.code("3.2")


def test_every_section_is_looked_at_whatever_python_looks(tmp_path: Path) -> None:
    other = bed.other_python()
    if other is None:
        pytest.skip("only one Python here")
    both = (*bed.running(), *find_interpreters([other]))
    place = bed.archive(tmp_path / "app.pyz", FILES, interpreters=both)
    codes = [BundleFile(str(place)).code(each.version)["app"] for each in both]
    whole = place.read_bytes()
    for each, code in zip(both, codes, strict=True):
        data = bytearray(whole)
        data[data.rindex(code) + 9] ^= 1
        place.write_bytes(data)
        found = BundleFile(str(place)).damage()
        assert f"the code of app for Python {each.version} differs from what was built" in found


def test_what_is_no_such_file(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", FILES)
    data = bytearray(place.read_bytes())
    data[200] ^= 1
    for content, said in ((b"", "is not a trainer.pyz"), (data[:100], "is damaged"), (data, "header of")):
        (tmp_path / "x.pyz").write_bytes(content)
        with pytest.raises(BundleError, match=said):
            BundleFile(str(tmp_path / "x.pyz"))
    (tmp_path / "x.pyz").write_bytes(place.read_bytes()[:-10])
    assert "is cut off" in BundleFile(str(tmp_path / "x.pyz")).damage()[0]
