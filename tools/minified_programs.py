"""Runs generated programs as they are and minified, in the interpreter that runs this.

python tools/minified_programs.py COUNT FIRST PRINTER       PRINTER: where python-minifier is installed
"""

import ast
import contextlib
import io
import json
import sys
import warnings
from pathlib import Path
from random import Random
from types import CodeType

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
    sys.path.append(sys.argv[3])

from build.minify.passes import PASSES
from build.minify.stage import shorten
from build.minify.transform import transform
from tools.program_grammar import program


def fault(text: str) -> str | None:
    """What is wrong with the minified self of a program; None where nothing is. SyntaxError if it is no program."""
    source = text.encode()
    before = _run(compile(source, "program", "exec"))
    outcome = shorten(source, tuple(PASSES))
    if outcome.refused is not None:
        return f"refused: {outcome.refused}"
    if len(outcome.data) > len(source):
        return "longer"
    if _run(compile(outcome.data, "program", "exec")) != before:
        return "prints something else"
    tree = transform(source, outcome.passes)
    if _dump(ast.parse(outcome.data)) != _dump(tree):
        return "the text is not the tree"
    if _run(compile(tree, "program", "exec")) != before:
        return "its bytecode prints something else"
    again = shorten(outcome.data, tuple(PASSES))
    if again.data != outcome.data:
        return "minified twice it differs"
    return None


def _dump(tree: ast.AST) -> str:
    """As the standard library writes it, without the `u` of `u"text"`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.kind = None
    return ast.dump(tree)


def _run(code: CodeType) -> str:
    """What it prints, and how it ends."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            exec(code, {"__name__": "program"})
        except Exception as error:
            print("ended by", repr(error))
    return output.getvalue()


def main() -> None:
    """Prints counts as JSON, and the first program with a fault."""
    warnings.simplefilter("ignore")
    count, first = int(sys.argv[1]), int(sys.argv[2])
    found: dict[str, object] = {"programs": 0, "no programs": 0, "bytes": 0, "faults": {}}
    faults: dict[str, str] = {}
    programs = outside = size = 0
    for seed in range(first, first + count):
        text = program(Random(seed))
        try:
            wrong = fault(text)
        except SyntaxError:
            outside += 1
            continue
        programs += 1
        size += len(text)
        if wrong is not None:
            faults[str(seed)] = wrong
    found = {"programs": programs, "not compiled": outside, "bytes": size, "faults": faults}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
