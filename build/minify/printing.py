"""Tree -> the shortest text that parses to the same tree.

python-minifier's printer does it, but for f-strings: those are copied from the source. A printer that runs under Python
3.12 or newer writes f-strings that 3.11 does not read; a copy is read by every Python that read the original.
"""

import ast
import io
import sys
import tokenize
from typing import Any

from python_minifier.module_printer import ModulePrinter

from build.minify.compare import difference
from build.minify.transform import decode, parse

DEEPEST = 10_000
"""Frames that the printer may use; it takes three to five for each level of nesting."""


class Unprintable(Exception):
    """The printer has no text for this tree that parses back to it."""


class _Printer(ModulePrinter):
    def __init__(self, source: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the printer has no hints
        self._lines = [line.encode() for line in source.split("\n")]

    def visit_JoinedStr(self, node: Any) -> None:
        self.printer.fstring(_one_line(self._segment(node)))  # type: ignore[no-untyped-call]  # as above

    def visit_TemplateStr(self, node: Any) -> None:
        self.printer.tstring(_one_line(self._segment(node)))  # type: ignore[no-untyped-call]  # as above

    def _segment(self, node: ast.expr) -> str:
        """The text of a node; columns count UTF-8 bytes."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        if first == last:
            return self._lines[first][node.col_offset : node.end_col_offset].decode()
        middle = self._lines[first + 1 : last]
        parts = [self._lines[first][node.col_offset :], *middle, self._lines[last][: node.end_col_offset]]
        return b"\n".join(parts).decode()


def render(module: ast.Module, source: str) -> str:
    """The text of `module`, whose f-strings stand in `source` where their positions say.

    Unprintable where what was printed does not parse to the same tree; RecursionError where it nests too deep.
    """
    printer = _Printer(source)
    limit = sys.getrecursionlimit()
    try:
        # for the printer alone: it recurses in Python, where that costs memory; the parser would overflow its C stack
        sys.setrecursionlimit(max(limit, DEEPEST))
        text = str(printer(module))
    except RecursionError:
        raise
    except (AssertionError, RuntimeError, ValueError, KeyError) as error:
        raise Unprintable(f"{type(error).__name__}: {error}") from None
    finally:
        sys.setrecursionlimit(limit)
    text = f"{text}\n" if text else ""
    try:
        again = parse(decode(text.encode()))
    except (SyntaxError, UnicodeEncodeError) as error:
        raise Unprintable(str(error)) from None
    fault = difference(module, again)
    if fault is not None:
        raise Unprintable(fault)
    return text


def _one_line(segment: str) -> str:
    """A string of several adjacent pieces without what stands between the pieces: line ends need the parentheses that
    the printer left out.
    """
    if "\n" not in segment:
        return segment
    pieces: list[str] = []
    # offset of the start of each line; a `(` stands before the segment
    starts = [0]
    for line in f"({segment}".split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    depth = begin = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(f"({segment})").readline):
            kind = tokenize.tok_name[token.type]
            if kind.endswith("STRING_START"):
                begin = begin if depth else _offset(starts, token.start)
                depth += 1
            elif kind.endswith("STRING_END"):
                depth -= 1
                if not depth:
                    pieces.append(segment[begin - 1 : _offset(starts, token.end) - 1])
            elif kind == "STRING" and not depth:
                pieces.append(segment[_offset(starts, token.start) - 1 : _offset(starts, token.end) - 1])
    except tokenize.TokenError as error:
        raise Unprintable(f"f-string: {error}") from None
    joined = ""
    for piece in pieces:
        # "" next to "b" would open a triple quote
        joined += " " * (joined[-1:] == piece[0]) + piece
    return joined


def _offset(starts: list[int], place: tuple[int, int]) -> int:
    return starts[place[0] - 1] + place[1]
