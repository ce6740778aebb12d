"""Which other modules a module names, read from its syntax tree."""

import ast
import warnings
from collections.abc import Iterator


def mentions(path: str, source: bytes, dotted: str) -> bool:
    """True where the module at this path imports `dotted` or something in it, or holds its name as a text."""
    module = _parse(source)
    if module is None:
        return False
    package = path.split("/")[:-1]
    for node in ast.walk(module):
        for name in _names(node, package):
            if name == dotted or name.startswith(f"{dotted}."):
                return True
    return False


def _parse(source: bytes) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _names(node: ast.AST, package: list[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        start = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*start, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
