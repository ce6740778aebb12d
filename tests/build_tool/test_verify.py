"""What was written is what went in, or the build refuses."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from build.archive import Zip
from build.errors import BuildError
from build.file_paths import uses_of_file
from build.tree import File, Tree
from build.verify import verify
from build.write import write
from tests.boot import bed

FILES: bed.Files = {
    "pack/__init__.py": "",
    "pack/part.py": 'def value():\n    """Docstring."""\n    return 42  # a comment\n',
    "pack/data.txt": b"some data",
    "uuid.py": "a_backport = 1\n",
    "app.py": "from pack.part import value\nprint(value())",
}


@pytest.fixture(scope="module", autouse=True)
def code_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    bed.CODE = tmp_path_factory.mktemp("code")


@pytest.mark.parametrize("originals", [True, False])
@pytest.mark.parametrize("minify", [True, False])
def test_what_was_written_is_accepted(tmp_path: Path, minify: bool, originals: bool) -> None:
    tree = bed.tree_of(FILES, minify=minify)
    sections = bed.code_of(tree)
    place = tmp_path / "app.pyz"
    place.write_bytes(write(tree, sections, {}, entry="app", originals=originals))
    assert verify(place, tree, sections, originals=originals)["entry"] == "app"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.pyz"]


def test_for_each_version(tmp_path: Path) -> None:
    other = bed.other_python()
    if other is None:
        pytest.skip("only one Python here")
    from build.interpreters import find_interpreters

    tree = bed.tree_of(FILES, minify=True)
    sections = bed.code_of(tree, (*find_interpreters([other]), *bed.running()))
    place = tmp_path / "app.pyz"
    place.write_bytes(write(tree, sections, {}, entry="app"))
    information = verify(place, tree, sections)
    digests = information["sha256"]
    assert isinstance(digests, dict)
    assert len(digests["code"]) == 2


def changed(tree: Tree, path: str, text: bytes) -> Tree:
    return tree.map(lambda file: replace(file, data=text, original=text) if file.path == path else file)


def test_other_content_is_refused(tmp_path: Path) -> None:
    tree = bed.tree_of(FILES)
    place = tmp_path / "app.pyz"
    place.write_bytes(write(tree, bed.code_of(tree), {}, entry="app"))
    for path, text in (("pack/data.txt", b"Some data"), ("pack/part.py", b"def value():\n    return 43\n")):
        other = changed(tree, path, text)
        with pytest.raises(BuildError, match=f"{path} differs"):
            verify(place, other, bed.code_of(other))


def test_other_code_is_refused(tmp_path: Path) -> None:
    """Code of one text beside another text, with every digest right: only running it shows that."""
    tree = bed.tree_of(FILES)
    (section,) = bed.code_of(tree)
    (other,) = bed.code_of(changed(tree, "pack/part.py", b"def value():\n    return 43\n"))
    place = tmp_path / "app.pyz"
    place.write_bytes(write(tree, (other,), {}, entry="app"))
    with pytest.raises(BuildError, match="digests differ"):
        verify(place, tree, (section,))


def test_a_module_without_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = bed.tree_of(FILES)
    (section,) = bed.code_of(tree)
    fewer = replace(section, codes=tuple(pair for pair in section.codes if pair[0] != "pack.part"))
    place = tmp_path / "app.pyz"
    place.write_bytes(write(tree, (fewer,), {}, entry="app"))
    monkeypatch.setattr("build.verify._verify_digests", lambda *_: None)
    with pytest.raises(BuildError, match=r"other modules: \['pack\.part'\]"):
        verify(place, tree, (section,))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    tree = bed.tree_of(FILES)
    sections = bed.code_of(tree)
    data = bytearray(write(tree, sections, {}, entry="app"))
    place = tmp_path / "app.pyz"
    place.write_bytes(data[:-30])
    with pytest.raises(BuildError, match="no zip"):
        verify(place, tree, sections)
    data[data.index(b"some data")] ^= 1
    place.write_bytes(data)
    with pytest.raises(BuildError, match="not what was built"):
        verify(place, tree, sections)


def test_a_foreign_member_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = bed.tree_of(FILES)
    sections = bed.code_of(tree)
    close = Zip.close

    def close_with_more(self: Zip) -> bytes:
        self.add("more.py", b"")
        return close(self)

    monkeypatch.setattr(Zip, "close", close_with_more)
    place = tmp_path / "app.pyz"
    place.write_bytes(write(tree, sections, {}, entry="app"))
    with zipfile.ZipFile(place) as archive:
        assert "more.py" in archive.namelist()
    with pytest.raises(BuildError, match=r"more\.py.* does not belong there"):
        verify(place, tree, sections)


def test_modules_that_make_paths_of_file_are_named() -> None:
    def module(name: str, text: str) -> File:
        return File(f"{name}.py", text.encode(), "dist", name, False, text.encode())

    tree = Tree.of(
        [
            module("opens", "import os\n\nopen(os.path.join(os.path.dirname(__file__), 'x'))\n"),
            module("asks", "import json\nwhere = json.__file__\n"),
            module("says", "'''not __file__'''\n# __file__\n"),
            module("broken", "__file__ (\n"),
            module("trainer_boot", "__file__\n"),
        ]
    )
    assert [(use.path, use.line) for use in uses_of_file(tree)] == [("asks.py", 2), ("opens.py", 3)]
    assert "opens.py:3 of dist uses __file__" in str(uses_of_file(tree)[1])
