"""The bill of materials: valid, the same for the same, and with every licence."""

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from build.errors import BuildError
from build.licences import licence_files
from build.lock import Lock
from build.resolve import resolve
from build.sbom import bill_of_materials
from build.tree import File, Tree
from tests.build_tool.lock_bed import NATIVE, PURE, lock, package, project

FACTS: dict[str, object] = {"name": "app", "version": "0.1.0", "commit": None, "passes": ["one"], "dirty": False}


def locked(folder: Path) -> Lock:
    return lock(
        folder,
        project('{ name = "pure" }', '{ name = "native" }'),
        package("pure", "1.0+local", PURE.replace("aa", "a" * 64), '{ name = "native" }'),
        package("native", "2", NATIVE),
    )


def tree(
    found: Lock, headers: str = "License-Expression: mit\n", texts: tuple[str, ...] = ("licenses/LICENSE",)
) -> Tree:
    """The project and the pure package, each with its metadata."""
    root = found.root().name
    files = [
        File(
            f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.4\nName: {name}\nVersion: 1\n{more}\n".encode(), name
        )
        for name, more in ((root, "License: own\n"), ("pure", headers))
    ]
    files.append(File(f"{root}-1.dist-info/licenses/LICENSE", b"free", root))
    files += [File(f"pure-1.dist-info/{path}", b"free", "pure") for path in texts]
    files.append(File("pure.py", b"A", "pure", "pure", False, b"A ", ("one",)))
    return Tree.of(files)


def bill(found: Lock, what: Tree) -> dict[str, Any]:
    text = bill_of_materials(what, found, resolve(found), FACTS)
    assert text == bill_of_materials(what, found, resolve(found), FACTS)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.decode()) is None
    value: dict[str, Any] = json.loads(text)
    return value


def test_what_travels_and_what_stays(tmp_path: Path) -> None:
    found = locked(tmp_path)
    made = bill(found, tree(found))
    native, pure = made["components"]
    assert (native["name"], native["properties"]) == ("native", [{"name": "trainer:place", "value": "environment"}])
    assert pure["purl"] == "pkg:pypi/pure@1.0%2Blocal"
    assert pure["licenses"] == [{"expression": "MIT"}]
    assert {"name": "trainer:licence-file:1", "value": "pure-1.dist-info/licenses/LICENSE"} in pure["properties"]
    assert pure["pedigree"] == {"notes": "minified: one"}
    needs = {each["ref"]: each["dependsOn"] for each in made["dependencies"]}
    assert needs[pure["purl"]] == [native["purl"]]
    assert needs[made["metadata"]["component"]["bom-ref"]] == [native["purl"], pure["purl"]]
    other = bill(found, tree(found, "License-Expression: BSD-3-Clause\n"))
    assert made["serialNumber"] != other["serialNumber"]


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ("License: MIT\n", {"expression": "MIT"}),
        ("License: Some of our own\n more lines\n", {"license": {"name": "Some of our own"}}),
        ("Classifier: License :: OSI Approved :: BSD License\n", {"license": {"name": "BSD License"}}),
    ],
)
def test_older_ways_of_naming_a_licence(tmp_path: Path, headers: str, named: dict[str, object]) -> None:
    found = locked(tmp_path)
    assert bill(found, tree(found, headers))["components"][1]["licenses"] == [named]


def test_texts_of_licences_are_found_in_every_layout(tmp_path: Path) -> None:
    found = locked(tmp_path)
    for path in ("licenses/any/name", "LICENCE.txt", "COPYING", "NOTICE"):
        assert licence_files(tree(found, texts=(path,)), "pure") == (f"pure-1.dist-info/{path}",)
    named = tree(found, "License-File: OWN\n", ("OWN",))
    assert licence_files(named, "pure") == ("pure-1.dist-info/OWN",)


def test_nothing_travels_without_its_licence(tmp_path: Path) -> None:
    found = locked(tmp_path)
    with pytest.raises(BuildError, match=r"pure 1\.0\+local would travel in the file without the text of its licence"):
        bill(found, tree(found, texts=()))


def test_one_version_from_two_indexes_is_two_components(tmp_path: Path) -> None:
    """Each with the index it comes from; the validator refuses equal references."""
    other = package("native", "2", NATIVE).replace("https://index.example/simple", "https://other.example/simple")
    found = lock(
        tmp_path,
        project(
            '{ name = "native", source = { registry = "https://index.example/simple" } }',
            '{ name = "native", source = { registry = "https://other.example/simple" } }',
            '{ name = "pure" }',
        ),
        package("pure", "1.0", PURE.replace("aa", "a" * 64)),
        package("native", "2", NATIVE),
        other,
    )
    references = [each["bom-ref"] for each in bill(found, tree(found))["components"]]
    assert len(set(references)) == len(references)
    assert any("repository_url=" in reference and "other.example" in reference for reference in references)


def test_copies_inside_a_package_are_components_of_it(tmp_path: Path) -> None:
    found = locked(tmp_path)
    copies = [
        File("pure/_vendor/__init__.py", b"", "pure", "pure._vendor", True, b"", ()),
        File("pure/_vendor/six.py", b'__version__ = "1.16.0"', "pure", "pure._vendor.six", False, b"", ()),
        File("pure/_vendor/vendor.txt", b"six==1.16.0\n", "pure"),
    ]
    made = bill(found, Tree.of([*tree(found), *copies]))
    pure = next(each for each in made["components"] if each["name"] == "pure")
    [six] = pure["components"]
    assert (six["name"], six["version"], six["purl"]) == ("six", "1.16.0", "pkg:pypi/six@1.16.0")
