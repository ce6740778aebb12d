"""Source and names of passes -> tree. The minifier prints this tree; the compile stage compiles it, in the target's
interpreter: standard library only, and every node keeps its position in the original text.
"""

import ast
import io
import tokenize
import warnings

from build.minify.compare import difference
from build.minify.passes import ON_REQUEST, PASSES

PRINT = "print"
"""The last name in a file's passes: how the tree is written. It changes nothing in the tree."""


class BrokenPromise(Exception):
    """A pass changed more than it promises."""


def decode(source: bytes) -> str:
    r"""The text as Python reads it: by its BOM or coding comment, every line end as `\n`. SyntaxError if it is not."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    try:
        text = source.decode(encoding)
    except UnicodeDecodeError as error:
        raise SyntaxError(f"not {encoding}: {error.reason}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse(text: str) -> ast.Module:
    """The tree, without the warnings about escapes and comparisons that the authors of the text may want to see."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def transform(source: bytes, passes: tuple[str, ...]) -> ast.Module:
    """The tree of `source` after the named passes.

    SyntaxError for source that this interpreter does not read, RecursionError or MemoryError where it nests too deep
    for it, BrokenPromise, KeyError for a pass that does not exist.
    """
    return transform_text(decode(source), passes)[0]


def transform_text(text: str, passes: tuple[str, ...]) -> tuple[ast.Module, tuple[str, ...]]:
    """The same from decoded text; also the names of the passes that changed something."""
    module, before = parse(text), parse(text)
    effective = []
    for name in passes:
        if name == PRINT:
            continue
        change = PASSES.get(name) or ON_REQUEST[name]
        change.apply(module)
        if difference(before, module) is None:
            continue
        fault = difference(before, module, change)
        if fault is not None:
            raise BrokenPromise(f"pass {name}: {fault}")
        change.apply(before)
        effective.append(name)
    return module, tuple(effective)
