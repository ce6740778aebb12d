"""An archive that is not as it was built says so, and what is wrong with it; old code never stands for new text."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.boot import bed
from trainer_boot import layout
from trainer_boot.bundle_file import BundleFile

ROOT = bed.ROOT
FILES: bed.Files = {
    "pack/__init__.py": "",
    "pack/part.py": "def value():\n    return 42\n",
    "app.py": "import pack.part\nprint(pack.part.value())",
    "note.txt": b"a note",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return bed.archive(tmp_path / "app.pyz", FILES)


def refused(place: Path, python: str = sys.executable) -> str:
    """What it says; it must be one error and one fix, and a failure."""
    done = bed.run(place, python=python)
    assert done.returncode == 1
    assert done.stdout == ""
    error, fix = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert fix.startswith("fix: ")
    return error


def pythons() -> list[str]:
    return [sys.executable, *filter(None, [bed.other_python()])]


def test_a_member_changed_by_a_zip_tool_is_named(place: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(place, "a") as archive:
        archive.writestr("pack/part.py", "def value():\n    return 43\n")
    for python in pythons():
        assert "was changed after it was built: pack/part.py" in refused(place, python)


def test_a_member_changed_in_its_place_is_named(place: Path) -> None:
    """As `zip` does it: what follows is moved."""
    (place.parent / "pack").mkdir()
    (place.parent / "pack" / "part.py").write_text("def value():\n    return 'a longer text than it was'\n")
    if shutil.which("zip") is None:
        pytest.skip("no zip here")
    subprocess.run(["zip", "-q", place, "pack/part.py"], cwd=place.parent, capture_output=True, check=True)
    for python in pythons():
        assert "was changed after it was built: pack/part.py" in refused(place, python)


def test_an_added_member_is_named(place: Path) -> None:
    with zipfile.ZipFile(place, "a") as archive:
        archive.writestr("pack/more.py", "")
    for python in pythons():
        assert "was changed after it was built: pack/more.py" in refused(place, python)


def test_an_archive_packed_anew_is_refused(place: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"
    with zipfile.ZipFile(place) as old, zipfile.ZipFile(again, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            new.writestr(info, data.replace(b"42", b"43") if info.filename == "pack/part.py" else data)
    for python in pythons():
        assert "header is missing" in refused(again, python)


def appended(place: Path, members: dict[str, str] | None, more: bytes = b"") -> None:
    """Puts a zip with these members, and more bytes, behind the file: what `cat` does."""
    content = io.BytesIO()
    if members is not None:
        with zipfile.ZipFile(content, "w") as archive:
            for name, text in members.items():
                archive.writestr(name, text)
    place.write_bytes(place.read_bytes() + content.getvalue() + more)


def damage(place: Path) -> str:
    """What another copy says of it."""
    (found,) = BundleFile(str(place)).damage()
    return found


def test_trailing_bytes_are_refused(place: Path) -> None:
    appended(place, None, b"x" * 17)
    for python in pythons():
        assert "was changed after it was built: 17 bytes were appended" in refused(place, python)
    assert "17 bytes were appended" in damage(place)


def test_an_appended_file_of_ours_is_refused(place: Path) -> None:
    """Its `__main__` runs, which is ours, and finds that the header is not that of the end."""
    appended(place, None, place.read_bytes())
    for python in pythons():
        assert "bytes were appended, a zip whose __main__.pyc Python runs" in refused(place, python)


def test_so_many_bytes_that_python_finds_no_zip(place: Path) -> None:
    appended(place, None, bytes(70_000))
    for python in pythons():
        done = bed.run(place, python=python)
        assert (done.returncode != 0, done.stdout) == (True, "")
    assert "70,000 bytes were appended" in damage(place)


@pytest.mark.parametrize("members", [{"__main__.py": "print('foreign')"}, {"data.txt": "no program"}])
def test_what_runs_of_an_appended_zip(place: Path, members: dict[str, str]) -> None:
    """Python reads the last table of contents: a `__main__` in it runs before anything of ours, and nothing of ours can
    refuse it, whatever TRAINER_VERIFY says. Another copy names it."""
    digest = hashlib.sha256(place.read_bytes()).hexdigest()
    appended(place, members)
    for python in pythons():
        done = bed.run(place, python=python, environment={"TRAINER_VERIFY": digest})
        if "__main__.py" in members:
            assert (done.returncode, done.stdout) == (0, "foreign\n")
        else:
            assert "can't find '__main__' module" in done.stderr
    told = damage(place)
    runs = "a zip whose __main__.py Python runs in place of the trainer"
    assert told.endswith("a zip" if "data.txt" in members else runs), told


def test_a_replaced_main_that_does_not_hand_over_runs(place: Path) -> None:
    """The same in the file's own zip; one that hands over to us is refused."""
    whole = place.read_bytes()
    main = (ROOT / "src" / "trainer_boot" / "__main__.py").read_text()
    for text in ("print('foreign')", main.replace("import marshal\n", "import marshal\nprint('foreign')\n")):
        place.write_bytes(whole)
        with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(place, "a") as archive:
            names = [name for name in archive.namelist() if name.startswith("__main__")]
            for name in names:
                archive.writestr(name, text if name.endswith(".py") else b"no bytecode")
        for python in pythons():
            done = bed.run(place, python=python)
            assert done.stdout == "foreign\n"
            if "import marshal" in text:  # it hands over
                assert done.returncode == 1
                assert "was changed after it was built: __main__" in done.stderr
        assert "was changed after it was built: __main__" in damage(place)


def test_bytes_in_front_are_refused(place: Path) -> None:
    place.write_bytes(b"#!/bin/false\n" + place.read_bytes())
    for python in pythons():
        assert "header is missing" in refused(place, python)


def test_changed_code_is_refused(place: Path) -> None:
    data = bytearray(place.read_bytes())
    data[data.index(b"pack/part.py")] ^= 1  # the file name in the code, which comes first
    place.write_bytes(data)
    done = bed.run(place)
    assert done.returncode == 1
    assert "was damaged after it was built" in done.stderr


@pytest.mark.parametrize("word", ["size", "tail_offset", "tail_check", "tail_crc"])
def test_a_changed_header_is_refused(place: Path, word: str) -> None:
    """By whoever needs that word: a Python that has code there looks at the check, another one at the CRC."""
    data = bytearray(place.read_bytes())
    data[layout.FIRST_WORD + 8 * layout.WORDS.index(word)] ^= 1
    place.write_bytes(data)
    if word != "tail_crc":
        assert "header" in refused(place)
    if other := bed.other_python():
        assert "header" in refused(place, other)


def test_changed_boot_code_is_refused(place: Path) -> None:
    data = bytearray(place.read_bytes())
    data[data.index(b"BundleFinder")] ^= 1
    place.write_bytes(data)
    assert "is damaged" in refused(place)


def test_changed_bytes_of_main_are_refused_by_what_it_starts(place: Path) -> None:
    """zipimport has run them without a look at their checksum."""
    data = bytearray(place.read_bytes())
    data[data.index(b"The first instruction of the built file")] ^= 1
    place.write_bytes(data)
    for python in pythons():
        assert "was changed after it was built: __main__" in refused(place, python)


def test_changed_text_of_what_starts_another_python_is_refused(place: Path) -> None:
    other = bed.other_python()
    if other is None:
        pytest.skip("only one Python here")
    with zipfile.ZipFile(place) as archive:
        offset = archive.getinfo("trainer_boot/finder.py").header_offset
    data = bytearray(place.read_bytes())
    data[offset + 1000] ^= 1
    place.write_bytes(data)
    assert "is damaged" in refused(place, other)


def test_every_byte_of_the_header_is_checked_at_the_start(place: Path) -> None:
    whole = place.read_bytes()
    for at in (2, 20, 23, layout.SLOT_SIZE * 4, layout.CONTENT_DIGEST, layout.LOCK_DIGEST + 31, layout.HEADER_SIZE - 1):
        data = bytearray(whole)
        data[at] ^= 1
        place.write_bytes(data)
        assert "the header of" in refused(place)


def verified(place: Path, wanted: str) -> "subprocess.CompletedProcess[str]":
    return bed.run(place, environment={"TRAINER_VERIFY": wanted})


def test_a_start_may_verify_the_whole_file(place: Path) -> None:
    for wanted in ("", "all", hashlib.sha256(place.read_bytes()).hexdigest().upper()):
        assert bed.lines(verified(place, wanted)) == ["42"]
    assert verified(place, "some").stderr.splitlines()[0] == "error: TRAINER_VERIFY is 'some'"
    data = bytearray(place.read_bytes())
    data[data.index(b"a note")] ^= 1  # not executed
    place.write_bytes(data)
    assert bed.lines(bed.run(place)) == ["42"]
    done = verified(place, "all")
    assert (done.returncode, done.stdout) == (1, "")
    assert "differs from the digest of its content" in done.stderr


def test_a_start_may_be_pinned_to_one_file(place: Path) -> None:
    done = verified(place, "0" * 64)
    assert (done.returncode, done.stdout) == (1, "")
    error, fix = done.stderr.splitlines()
    assert "is not the file that may run" in error
    assert hashlib.sha256(place.read_bytes()).hexdigest() in fix


@pytest.mark.parametrize("part", [0.3, 0.9, 0.999])
def test_a_copy_that_was_cut_off_does_not_run(place: Path, part: float) -> None:
    os.truncate(place, int(place.stat().st_size * part))
    done = bed.run(place)
    assert done.returncode != 0
    assert done.stdout == ""


def test_every_byte_is_looked_at_when_asked(tmp_path: Path) -> None:
    files: bed.Files = {
        **FILES,
        "app.py": """
            import sys
            from trainer_boot.bundle_file import BundleFile
            for line in BundleFile(sys.argv[0]).damage() or ["whole"]:
                print(line)
        """,
    }
    place = bed.archive(tmp_path / "app.pyz", files, minify=True)
    assert bed.lines(bed.run(place)) == ["whole"]
    data = bytearray(place.read_bytes())
    data[data.index(b"a note")] ^= 1
    place.write_bytes(data)
    for python in pythons():
        assert bed.lines(bed.run(place, python=python)) == ["note.txt differs from what was built"]
