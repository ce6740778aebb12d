"""Does a package read docstrings?

Nobody can show that for all programs, so the question is asked widely: a package that mentions a docstring in any
spelling, or that imports something known for reading those of the code that calls it, keeps all of its own.
"""

import ast
import re

from build.minify.transform import decode, parse

# Names, attributes and texts of code that reads docstrings.
MENTIONS = frozenset({"__doc__", "func_doc", "getdoc", "cleandoc", "docopt", "doctest", "pydoc"})

# Modules that make something (help texts, grammars, schemas, tests) out of the docstrings of the code that uses them.
_READERS = """
    argh arguably click cmd cyclopts defopt docopt docopt_ng docstring_parser doctest fastapi fire flasgger invoke
    jsonargparse numpydoc plac plumbum ply pydantic pydoc simple_parsing spark sphinx strawberry tap typer unittest
    xmlrpc
"""
READERS = frozenset(_READERS.split())

_QUICK = re.compile(rb"\b(?:" + b"|".join(word.encode() for word in sorted(MENTIONS | READERS)) + rb")\b")


def reads_docstrings(source: bytes) -> str | None:
    """What in this module says that docstrings are read, for the report ("line 3: __doc__"); None where nothing does.

    A file that does not parse counts as one that reads them.
    """
    if not _QUICK.search(source):
        return None
    try:
        module = parse(decode(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "does not parse"
    prose = docstrings(module)
    for node in ast.walk(module):
        found = _mention(node) if id(node) not in prose else None
        if found:
            return f"line {getattr(node, 'lineno', 1)}: {found}"
    return None


def docstrings(module: ast.Module) -> set[int]:
    """Identities of the constants that are docstrings: prose about `__doc__` reads nothing."""
    return {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }


def _mention(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in MENTIONS:
            return name
        case ast.Constant(value=str(text)):
            return next((word for word in MENTIONS if re.search(rf"\b{word}\b", text)), None)
        case ast.Import(names=aliases):
            return next((alias.name for alias in aliases if alias.name.split(".")[0] in READERS), None)
        case ast.ImportFrom(module=str(name), names=aliases, level=level):
            if not level and name.split(".")[0] in READERS:
                return name
            return next((alias.name for alias in aliases if alias.name in MENTIONS), None)
    return None
