"""Modules that the build left out of a bundled distribution come from the environment, or not at all."""

from pathlib import Path

import pytest

from build.write import write
from tests.boot import bed

METADATA = "Metadata-Version: 2.1\nName: acme-kit\nVersion: {}\n"
FILES: bed.Files = {
    "acme/__init__.py": "here = 'bundled'",
    "acme/used.py": "",
    "acme_kit-1.4.dist-info/METADATA": METADATA.format("1.4"),
    "app.py": """
        import sys, warnings
        warnings.simplefilter("always")
        sys.path.append(sys.argv[1])
        import acme
        for name in "acme.rare", "acme.sub.deep", "acme.never":
            try:
                module = __import__(name, fromlist=["x"])
                print(name, module.here, acme.here)
            except ModuleNotFoundError as error:
                print(error)
    """,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that left three modules out."""
    tree = bed.tree_of(FILES)
    left_out = {"left_out": {"acme-kit": ["acme.rare", "acme.sub", "acme.sub.deep"]}}
    path = tmp_path_factory.mktemp("left-out") / "app.pyz"
    path.write_bytes(write(tree, bed.code_of(tree), left_out, entry="app"))
    return path


def installed(folder: Path, version: str) -> Path:
    """An environment that has the whole distribution."""
    information = folder / f"acme_kit-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(METADATA.format(version))
    (folder / "acme" / "sub").mkdir(parents=True)
    (folder / "acme" / "__init__.py").write_text("here = 'installed'")
    (folder / "acme" / "rare.py").write_text("from acme import here as whose; here = 'rare beside ' + whose")
    (folder / "acme" / "never.py").write_text("here = 'never'")
    (folder / "acme" / "sub" / "__init__.py").write_text("")
    (folder / "acme" / "sub" / "deep.py").write_text("from .. import here as whose; here = 'deep beside ' + whose")
    return folder


def test_the_same_version_serves_them(place: Path, tmp_path: Path) -> None:
    done = bed.run(place, str(installed(tmp_path / "site", "1.4")))
    assert bed.lines(done) == [
        "acme.rare rare beside bundled bundled",
        "acme.sub.deep deep beside bundled bundled",
        "No module named 'acme.never'",
    ]
    assert not done.stderr


@pytest.mark.parametrize(("version", "said"), [("1.3", "install acme-kit==1.4, not 1.3,"), (None, "acme-kit==1.4 in")])
def test_another_version_does_not_and_a_warning_says_why(
    place: Path, tmp_path: Path, version: str | None, said: str
) -> None:
    done = bed.run(place, str(installed(tmp_path / "site", version) if version else tmp_path))
    assert bed.lines(done) == [
        "No module named 'acme.rare'",
        "No module named 'acme.sub'",
        "No module named 'acme.never'",
    ]
    assert said in done.stderr
    assert "keep = ['acme.rare']" in done.stderr
    assert "acme.never" not in done.stderr
