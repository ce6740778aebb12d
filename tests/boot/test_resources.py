"""Data files of bundled packages, as importlib.resources, pkgutil and `__file__` ask for them."""

import hashlib
from pathlib import Path

import pytest

from tests.boot import bed

TEMPLATE = b"# a comment that stays\nvalue: int = 1  # and so does this one\n"
FILES: bed.Files = {
    "holder/__init__.py": "",
    "holder/beside.txt": b"beside\n",
    "holder/inner/__init__.py": "",
    "holder/inner/tool.py": "def nothing(): pass",
    "holder/inner/note.txt": b"note",
    "holder/inner/data/blob.bin": b"\xff\xfe\x00raw",
    "holder/inner/data/empty.json": b"",
    "holder/inner/data/template.py": TEMPLATE,
    "holder/inner/data/deep/crlf.txt": b"line one\r\nline two\r\n",
    "app.py": """
        import hashlib, pkgutil, sys
        from importlib import import_module
        from importlib.resources import as_file, files
        inner = files("holder.inner")
        print(sorted(entry.name for entry in inner.iterdir() if not entry.name.startswith("__")))
        data = inner / "data"
        print(data.is_dir(), data.is_file(), sorted(entry.name for entry in data.iterdir()))
        print((data / "deep" / "crlf.txt").read_bytes(), repr(data.joinpath("deep", "crlf.txt").read_text()))
        print((data / "blob.bin").read_bytes(), repr((data / "empty.json").read_text()))
        print(hashlib.sha256((data / "template.py").read_bytes()).hexdigest())
        print(pkgutil.get_data("holder", "beside.txt"), pkgutil.get_data("holder", "inner/note.txt"))
        print((data / "nope").is_file(), (data / "nope").is_dir())
        for wrong in (data / "nope").read_bytes, lambda: pkgutil.get_data("holder", "nope"):
            try:
                wrong()
                print("no error")
            except FileNotFoundError as error:
                print(type(error).__name__)
        with as_file(data / "blob.bin") as path:
            print(path.read_bytes() == (data / "blob.bin").read_bytes())
        with inner.joinpath("note.txt").open() as file:
            print(file.read())
        holder = import_module("holder")
        print(holder.__loader__.get_data(holder.__file__.replace("__init__.py", "inner/../beside.txt")))
    """,
}
EXPECTED = [
    "['data', 'note.txt', 'tool.py']",
    "True False ['blob.bin', 'deep', 'empty.json', 'template.py']",
    r"b'line one\r\nline two\r\n' 'line one\nline two\n'",
    r"b'\xff\xfe\x00raw' ''",
    hashlib.sha256(TEMPLATE).hexdigest(),
    r"b'beside\n' b'note'",
    "False False",
    "FileNotFoundError",
    "FileNotFoundError",
    "True",
    "note",
    r"b'beside\n'",
]
TEMPLATES = ["holder/inner/data/template.py"]


@pytest.mark.parametrize("minify", [False, True])
def test_files_are_what_they_were(tmp_path: Path, minify: bool) -> None:
    place = bed.archive(tmp_path / "app.pyz", FILES, data=TEMPLATES, minify=minify)
    assert bed.lines(bed.run(place)) == EXPECTED


def test_the_same_from_a_plain_folder(tmp_path: Path) -> None:
    """The expectation is Python's own behaviour, not ours."""
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(bed.bytes_of(content))
    assert bed.lines(bed.run(tmp_path / "app.py")) == EXPECTED


def test_the_same_under_a_python_without_code(tmp_path: Path) -> None:
    other = bed.other_python()
    if other is None:
        pytest.skip("only one Python here")
    place = bed.archive(tmp_path / "app.pyz", FILES, data=TEMPLATES)
    assert bed.lines(bed.run(place, python=other)) == EXPECTED


def test_traversables_by_the_rules(tmp_path: Path) -> None:
    files: bed.Files = {
        **FILES,
        "app.py": """
            from importlib.resources import files
            inner = files("holder.inner")
            print(inner.name, inner.joinpath("data/deep").name, (inner / "data" / "..") == inner, inner.parent.name)
            for wrong, mode in ((inner / "note.txt", "w"), (inner, "rb"), (inner / "no", "rb")):
                try:
                    wrong.open(mode)
                except Exception as error:
                    print(type(error).__name__)
            for wrong in inner / "note.txt", inner / "no":
                try:
                    wrong.iterdir()
                except Exception as error:
                    print(type(error).__name__)
            reader = inner.joinpath("note.txt")
            print(reader.read_text(encoding="utf-8"), reader.open("rb").read(), str(inner).endswith("pyz/holder/inner"))
            import holder.inner.tool
            spec = holder.inner.tool.__spec__
            print(sorted(entry.name for entry in spec.loader.get_resource_reader(spec.name).files().iterdir())[-1])
        """,
    }
    place = bed.archive(tmp_path / "app.pyz", files, data=TEMPLATES)
    assert bed.lines(bed.run(place)) == [
        "inner deep True holder",
        "ValueError",
        "IsADirectoryError",
        "FileNotFoundError",
        "NotADirectoryError",
        "FileNotFoundError",
        "note b'note' True",
        "tool.py",
    ]
