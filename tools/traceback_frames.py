"""Every line that a traceback can show, of every instruction that can fail: of the file, or of plain sources.

    python tools/traceback_frames.py FILE.pyz            boots the file, asks its Finder
    python tools/traceback_frames.py SOURCES.json        {module: [path, name in the file]}: compiles these

Prints {module: [file, {function and its line: [frames]}]} as JSON. Standard library only: it runs in every Python.
"""

import contextlib
import dis
import io
import json
import linecache
import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from types import CodeType
from typing import Any

NEVER_FAIL = {"LOAD_CONST", "NOP", "RETURN_CONST", "RETURN_VALUE"}


def functions(code: CodeType) -> Iterator[CodeType]:
    """The code objects in one."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from functions(constant)


def frames(code: CodeType) -> list[str]:
    """What is shown of an error at each of its instructions that can fail: line number, text, carets."""
    shown = []
    places = {each.positions for each in dis.get_instructions(code) if each.opname not in NEVER_FAIL}
    for line, last, column, end in sorted(filter(None, places), key=str):
        if line is not None:
            summary = traceback.FrameSummary(
                "FILE", line, code.co_name, lookup_line=False, end_lineno=last, colno=column, end_colno=end
            )
            summary.filename = code.co_filename
            text = "".join(traceback.StackSummary.from_list([summary]).format())
            shown.append(text.replace(code.co_filename, "FILE"))
    return shown


def table(code: CodeType) -> dict[str, list[str]]:
    """By the full name of a function and the line that it begins at."""
    found: dict[str, list[str]] = {}
    for each in functions(code):
        found.setdefault(f"{each.co_qualname}:{each.co_firstlineno}", []).extend(frames(each))
    return found


def of_archive(path: str) -> dict[str, Any]:
    """Those of the file's modules, with the lines that its loader gives out."""
    sys.argv = [path, "exec", os.devnull]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        runpy.run_path(path)  # not as __main__: it boots, and starts nothing
    finder: Any = next(each for each in sys.meta_path if type(each).__name__ == "BundleFinder")
    assert finder.loader.has_code
    found = {}
    for name in finder.modules:
        code = finder.loader.get_code(name)
        found[name] = [code.co_filename.removeprefix(finder.archive.prefix), table(code)]
        linecache.clearcache()
    return found


def of_sources(path: str) -> dict[str, Any]:
    """The same of plain files."""
    with open(path, encoding="utf-8") as file:
        sources = json.load(file)
    found = {}
    for name, (source, inner) in sources.items():
        with open(source, "rb") as file:
            code = compile(file.read(), source, "exec", dont_inherit=True, optimize=0)
        found[name] = [inner, table(code)]
    return found


if __name__ == "__main__":
    place = sys.argv[1]
    json.dump(of_sources(place) if place.endswith(".json") else of_archive(place), sys.stdout)
