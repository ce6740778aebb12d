"""The value that the stages pass on."""

from dataclasses import replace

import pytest

from build.tree import File, Tree

MODULE = File("a/b.py", b"x=1", "dist", "a.b", False, b"x = 1")
DATA = File("a/c.txt", b"c", "dist")


def test_files_are_sorted_by_path() -> None:
    assert [file.path for file in Tree.of([DATA, MODULE])] == ["a/b.py", "a/c.txt"]
    assert Tree.of([DATA, MODULE]) == Tree.of([MODULE, DATA])
    assert Tree.of([DATA, MODULE]).modules() == (MODULE,)
    assert len(Tree.of([])) == 0


@pytest.mark.parametrize("path", ["", "/a", "a//b", "../a", "a/./b", "a\\b", "a\0"])
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a relative posix path"):
        Tree.of([replace(DATA, path=path)])


def test_two_of_one_path_or_name_are_refused() -> None:
    with pytest.raises(ValueError, match="from both dist and other"):
        Tree.of([DATA, replace(DATA, package="other")])
    package = replace(MODULE, path="a/b/__init__.py", is_package=True)
    with pytest.raises(ValueError, match=r"a\.b is both"):
        Tree.of([MODULE, package])


def test_a_module_has_its_original_text() -> None:
    with pytest.raises(ValueError, match="no original text"):
        Tree.of([replace(MODULE, original=None)])


def test_map_changes_every_file() -> None:
    shorter = Tree.of([MODULE, DATA]).map(lambda file: replace(file, data=file.data[:1]))
    assert [file.data for file in shorter] == [b"x", b"c"]


@pytest.mark.parametrize(
    "other",
    [
        replace(MODULE, data=b"x=2"),
        replace(MODULE, original=b"x = 1 "),
        replace(MODULE, passes=("docstrings",)),
        replace(MODULE, package="other"),
    ],
)
def test_the_digest_covers_all_that_the_file_is_made_of(other: File) -> None:
    assert Tree.of([MODULE, DATA]).digest() == Tree.of([DATA, MODULE]).digest()
    assert Tree.of([MODULE, DATA]).digest() != Tree.of([other, DATA]).digest()
