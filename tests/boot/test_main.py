"""The first instruction of an archive."""

import ast
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from build.minify.passes import PASSES
from build.minify.stage import shorten
from build.write import write
from tests.boot import bed
from trainer_boot import layout

MAIN = bed.ROOT / "src" / "trainer_boot" / "__main__.py"


def constants() -> dict[str, object]:
    """The module-level constants of __main__, which can't be imported without running it."""
    found: dict[str, object] = {}
    for statement in ast.parse(MAIN.read_bytes()).body:
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
            try:
                value = ast.literal_eval(statement.value)
            except ValueError:
                continue
            if isinstance(target, ast.Tuple):
                found.update(zip((ast.unparse(name) for name in target.elts), value, strict=True))
            else:
                found[ast.unparse(target)] = value
    return found


def test_its_numbers_are_those_of_the_format() -> None:
    found = constants()
    names = ("SIGNATURE", "HEADER_SIZE", "FIRST_SLOT", "SLOT_SIZE", "SLOTS", "START_SIZE", "BOOT_MODULES")
    assert {name: found[name] for name in names} == {name: getattr(layout, name) for name in names}
    assert found["SIGNATURE_AT"] == len(layout.SHEBANG)
    for name in ("MAIN_SIZE", "SOURCES_SIZE", "SOURCES_CHECK"):
        assert found[name] == layout.FIRST_WORD + 8 * layout.WORDS.index(name.lower())
    assert layout.SLOT_VERSION == 56


@pytest.mark.parametrize("minified", [False, True])
def test_python_3_6_can_parse_it(minified: bool) -> None:
    text = shorten(MAIN.read_bytes(), tuple(PASSES)).data if minified else MAIN.read_bytes()
    ast.parse(text, feature_version=(3, 6))


@pytest.mark.parametrize("version", ["3.6", "3.8", "3.9", "3.10"])
def test_an_old_python_says_what_it_needs(tmp_path: Path, version: str) -> None:
    old = bed.python(version)
    if old is None:
        pytest.skip(f"no Python {version} here")
    place = bed.archive(tmp_path / "app.pyz", {"app.py": "print('ran')"}, minify=True)
    done = bed.run(place, "train", "x", python=old)
    assert (done.returncode, done.stdout) == (3, "")
    error, fix = done.stderr.splitlines()
    served = bed.running()[0].version
    assert error.startswith(f"error: this file needs CPython 3.11 or newer (it has code for {served}); ")
    assert f"is cpython {version}." in error
    assert fix == f"fix: start it with a newer one, as in: python{served} {place} train x"


def test_it_starts_by_itself_where_the_shebang_s_python_will_do(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", {"app.py": "print('ran')"})
    link = tmp_path / "python3"
    link.symlink_to(bed.running()[0].executable)
    done = subprocess.run(
        [place], capture_output=True, text=True, env={"PATH": f"{tmp_path}:{os.defpath}"}, check=False
    )
    assert (done.stdout, done.stderr) == ("ran\n", "")


def test_a_start_imports_next_to_nothing(tmp_path: Path) -> None:
    files: bed.Files = {"app.py": "import sys\nprint(*sorted(sys.modules))"}
    found = set(bed.lines(bed.run(bed.archive(tmp_path / "app.pyz", files)))[0].split())
    expensive = {"zipfile", "pathlib", "json", "re", "zlib", "typing", "dataclasses", "inspect", "struct", "__future__"}
    assert not found & expensive
    assert {name for name in found if name.startswith("trainer_boot")} == set(layout.BOOT_MODULES)


def test_a_python_without_code_here_is_told_once_which_have(tmp_path: Path) -> None:
    other = bed.other_python()
    if other is None:
        pytest.skip("only one Python here")
    files: bed.Files = {"app.py": "import sys\nprint(*sorted(name for name in sys.modules if 'trainer_boot' in name))"}
    place = bed.archive(tmp_path / "app.pyz", files)
    done = bed.run(place, python=other)
    assert done.stderr.startswith(f"note: app.pyz has code for Python {bed.running()[0].version}; under 3.")
    assert done.stderr.endswith("every module is compiled at every start, to the same results\n")
    for variables in ({"RANK": "1"}, {"TRAINER_PYZ_BUILD": "of the parent"}):
        assert bed.run(place, python=other, environment=variables).stderr == ""
    assert bed.run(place).stderr == ""
    # what zipimport loads, before there is a Finder, is checked as a whole
    assert set(bed.lines(done)[0].split()) <= set(layout.SOURCE_MODULES)


def test_code_of_a_foreign_magic_number_is_never_read(tmp_path: Path) -> None:
    """As under a preview of the same minor version: unmarshalling it could do anything."""
    tree = bed.tree_of({"app.py": "print('ran')"})
    (section,) = bed.code_of(tree)
    foreign = replace(
        section.interpreter, magic=bytes([section.interpreter.magic[0] ^ 1]) + section.interpreter.magic[1:]
    )
    garbage = tuple((name, b"\xff" * len(code)) for name, code in section.codes)
    place = tmp_path / "app.pyz"
    place.write_bytes(write(tree, [replace(section, interpreter=foreign, codes=garbage)], {}, entry="app"))
    done = bed.run(place)
    assert bed.lines(done) == ["ran"]
    assert done.stderr.startswith("note: app.pyz has code for Python ")
