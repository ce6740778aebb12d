"""Tracebacks, inspect and linecache show the text whose lines the code means."""

import sys
from pathlib import Path

import pytest

from tests.boot import bed

ORIGINAL = '''\
"""A docstring that the minifier drops."""

# a comment, and empty lines


def fail(value: int) -> None:
    """Another one."""

    number = value  # with a comment

    raise ValueError(  # here
        f"no {number}"
    )
'''
FILES: bed.Files = {
    "pack/__init__.py": "",
    "pack/part.py": ORIGINAL,
    "app.py": """
        import inspect, sys, traceback
        from pack import part
        if sys.argv[1:]:
            part.fail(3)
        try:
            part.fail(3)
        except ValueError as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            print(frame.lineno, frame.line, frame.filename.partition("app.pyz")[2])
        source = part.__loader__.get_source("pack.part")
        print(repr(source))
        try:
            print(repr(inspect.getsource(part.fail)))
        except OSError as error:
            print(error)
    """,
}


def shown(place: Path, python: str = sys.executable) -> list[str]:
    return bed.lines(bed.run(place, python=python))


def test_the_author_s_text(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", FILES, minify=True)
    assert shown(place) == [
        "11 raise ValueError(  # here /pack/part.py",
        repr(ORIGINAL),
        repr(ORIGINAL[ORIGINAL.index("def fail") :]),
    ]


def test_an_uncaught_error_shows_it_too(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", FILES, minify=True)
    done = bed.run(place, "uncaught")
    assert done.returncode == 1
    assert f'File "{place}/pack/part.py", line 11, in fail\n    raise ValueError(  # here\n' in done.stderr
    assert done.stderr.endswith("ValueError: no 3\n")
    assert "exec_module" not in done.stderr


def test_left_out_it_shows_numbers_only(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", FILES, minify=True, originals=False)
    assert shown(place) == ["11  /pack/part.py", "None", "could not get source code"]
    assert b"A docstring that" not in place.read_bytes()


def test_a_python_without_code_shows_what_it_compiled(tmp_path: Path) -> None:
    other = bed.other_python()
    if other is None:
        pytest.skip("only one Python here")
    place = bed.archive(tmp_path / "app.pyz", FILES, minify=True)
    line, source, function = shown(place, other)
    text = eval(source)
    assert "raise ValueError" in text.splitlines()[int(line.split()[0]) - 1]
    assert "comment" not in text
    assert eval(function).rstrip("\n") in text


def test_a_module_that_was_not_minified_needs_no_second_text(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", FILES, originals=False)
    assert shown(place)[1] == repr(ORIGINAL)


def test_other_encodings_are_decoded(tmp_path: Path) -> None:
    text = "# -*- coding: latin-1 -*-\nNAME = 'é'  # ü\n"
    files: bed.Files = {
        "pack/__init__.py": "",
        "pack/part.py": text.encode("latin-1"),
        "app.py": "from pack import part\nprint(ascii(part.NAME), ascii(part.__loader__.get_source('pack.part')))",
    }
    for minify in False, True:
        place = bed.archive(tmp_path / "app.pyz", files, minify=minify)
        assert shown(place) == [f"{'é'!a} {text!a}"]
