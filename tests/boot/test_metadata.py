"""importlib.metadata finds bundled distributions, in any spelling, once."""

from pathlib import Path

import pytest

from tests.boot import bed

FILES: bed.Files = {
    "acme_kit/__init__.py": "def hook(): return 'called'",
    "Acme.Tool_kit-1.4.dist-info/METADATA": b"Metadata-Version: 2.1\nName: Acme.Tool-kit\nVersion: 1.4\n",
    "Acme.Tool_kit-1.4.dist-info/entry_points.txt": b"[acme.plugins]\nmain = acme_kit:hook\n",
    "Acme.Tool_kit-1.4.dist-info/RECORD": b"acme_kit/__init__.py,,\n",
    "acme-0.1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: acme\nVersion: 0.1\n",
    "app.py": """
        import importlib.metadata as metadata, sys
        for name in "Acme.Tool-kit", "acme-tool-kit", "acme_tool_kit", "ACME.tool..kit", "acme":
            print(metadata.version(name))
        for name in "acme-tool", "tool-kit", "acme-tool-kit2":
            try:
                print(metadata.version(name))
            except metadata.PackageNotFoundError:
                print("not found")
        for point in metadata.entry_points(group="acme.plugins"):
            print(point.name, point.value, point.dist.metadata["Name"], point.load()())
        names = [distribution.metadata["Name"] for distribution in metadata.distributions()]
        print(names.count("Acme.Tool-kit"), names.count("acme"))
        print([path.locate().read_text() for path in metadata.files("acme-tool-kit")])
        print(len(list(metadata.distributions(path=[]))), len(list(metadata.distributions(path=[sys.argv[0]]))))
    """,
}
EXPECTED = [
    *["1.4"] * 4,
    "0.1",
    *["not found"] * 3,
    "main acme_kit:hook Acme.Tool-kit called",
    "1 1",
    "[\"def hook(): return 'called'\"]",
    "0 2",
]


def test_every_spelling_and_once(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", FILES)
    assert bed.lines(bed.run(place)) == EXPECTED


def test_under_a_python_without_code(tmp_path: Path) -> None:
    other = bed.other_python()
    if other is None:
        pytest.skip("only one Python here")
    place = bed.archive(tmp_path / "app.pyz", FILES)
    assert bed.lines(bed.run(place, python=other)) == EXPECTED


def test_the_bundled_one_before_the_environment_s(tmp_path: Path) -> None:
    older = tmp_path / "site" / "acme-0.0.dist-info"
    older.mkdir(parents=True)
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 0.0\n")
    files: bed.Files = {**FILES, "app.py": "import importlib.metadata as m; print(m.version('acme'))"}
    place = bed.archive(tmp_path / "app.pyz", files)
    assert bed.lines(bed.run(place, environment={"PYTHONPATH": str(older.parent)})) == ["0.1"]
